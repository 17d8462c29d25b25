"""What people see before they know the cause, and the checks that look for it; `explain` searches these phrases."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Symptom:
    """``seen``: words of someone in trouble. ``codes``: checks that look for a cause, likeliest first."""

    seen: str
    codes: tuple[str, ...]


def _table(rows: str) -> tuple[Symptom, ...]:
    pairs = (line.rsplit(":", 1) for line in rows.strip().splitlines())
    return tuple(Symptom(seen.strip(), tuple(codes.split())) for seen, codes in pairs)


SYMPTOMS = {
    "The first loss": _table("""
        first loss is 7 or 20 instead of 2.303: WD101 WD123
        initial loss much higher than ln(num_classes): WD101 WD123
        loss starts in the hundreds or thousands: WD101 WD123 WD104
        loss grows with the batch size: WD101
        loss is negative: WD108 WD103
        loss is exactly 0 from the first step: WD103 WD105 WD111
        loss goes to minus infinity: WD103 WD108
        nll_loss is negative: WD103 WD108
        dice loss is negative, above 1 or does not fall: WD103
        KL term of the VAE is negative, loss goes to minus infinity: WD108
        log_prob gets more and more negative, forgot the minus, ELBO falls: WD108
        flow collapses, log-det or log variance has the wrong sign: WD108
        PPO gets worse and worse, reward falls while the surrogate loss falls: WD108
        ctc_loss is negative or zero, or predicts only blanks: WD103 WD105
        head still has 1000 outputs, my data has 10 classes: WD106
    """),
    "The loss does not fall": _table("""
        model is not learning: WD141 WD102 WD316 WD311 WD501
        loss is not decreasing: WD141 WD102 WD316 WD123
        accuracy stays at chance, 10 % for ten classes: WD141 WD102 WD105
        weights are not updating: WD316 WD311 WD501
        loss stuck at 2.303: WD141 WD102 WD214 WD316
        loss stuck at 0.693: WD141 WD102 WD133
        loss stuck at 1.099 or 4.605: WD141 WD102 WD133
        loss stuck at 6.908, 1000 classes: WD141 WD102 WD214
        binary classifier does not learn, loss is ln 2: WD141 WD102 WD133
        loss does not go below 1.46: WD102
        loss plateaus early, accuracy far too low although everything looks right: WD102 WD107
        model predicts the same class for every input: WD141 WD122 WD133 WD214
        output is the same whatever the input: WD133 WD122 WD214
        all predictions are zero: WD107 WD214 WD122
        regression predicts the mean of the targets: WD104 WD107 WD123
        weights of samples or advantages of actions make no difference: WD104
        UserWarning: using a target size that is different to the input size: WD104
        outputs never negative, targets are: WD107
        weights do not change after optimizer.step(): WD316 WD320 WD311 WD501 WD506
        optimizer created in training_step, momentum lost: WD511 WD506
        Adam starts over in every epoch, optimizer state is reset: WD511
        weights are reset, training starts over in every epoch: WD320
        loss jumps back up at the beginning of every epoch: WD320 WD511
        EMA or target network overwrites the model: WD320
        loss does not change at all: WD316 WD109 WD506 WD501
        part of the model does not train: WD314 WD311 WD315
        new layer does not learn, it is not in the optimizer: WD311 WD312
        replaced the head after creating the optimizer, it does not train: WD312
        layers in a python list are missing from parameters(): WD313
        fine-tuning does nothing, everything is frozen: WD315 WD314
        backbone still frozen after resuming from a checkpoint: WD315
        froze the encoder with requires_grad = False, it still changes: WD315
        learning rate is 0, lr stays at zero: WD501 WD502
        learning rate does not change, warm-up takes forever: WD502 WD503
        scheduler steps once per epoch instead of every step: WD502
        scheduler has no effect on the learning rate: WD503 WD502
        trains far too slowly, learning rate is tiny: WD316 WD502
        diffusion model predicts zero, its loss stays at 1: WD116
        VAE ignores its encoder, posterior collapse, samples from the prior are bad: WD116
        WGAN-GP does not get better, gradient penalty is huge or its norm runs over dim=1: WD118
        GAN makes noise, its generator gets worse while both losses fall: WD117 WD110
        contrastive loss falls to its minimum at once and the embeddings are of no use: WD114 WD103
        SimSiam or BYOL collapses, all embeddings are the same: WD115
        distillation loss is always 0, teacher and student are the same: WD114
        learns k times too slowly with gradient accumulation: WD512
        training_step returned None: WD506
        manual optimization, loss never goes down: WD506 WD216 WD217
        gradients are None: WD314 WD109 WD313
        an auxiliary loss is in the total and does not get better: WD109 WD314
        gradients are zero before the step although backward ran: WD217
        second loss or gradient accumulation has no effect in manual optimization: WD217
        early layers have tiny gradients in a deep network: WD212 WD215
        dead ReLU, activations are all zero: WD214
        tanh or sigmoid saturated at 1 and -1: WD215
        initialised with a constant, all neurons learn the same: WD304
        LoRA adapter stays at zero: WD302
        weights shrink to zero: WD319 WD318 WD301
        dropout(0.9), model learns nothing: WD505
    """),
    "The loss rises, jumps or oscillates": _table("""
        loss goes up instead of down: WD144 WD317 WD318
        loss explodes after a few steps: WD213 WD317 WD144
        loss spikes in the middle of training: WD143 WD213
        gradient clipping has no effect: WD218 WD206
        loss jumps up and down from batch to batch: WD110 WD317 WD143
        model forgets one class while it sees the other, data sorted by label: WD110
        accuracy drops suddenly and recovers slowly: WD301 WD143
        gradient norm is huge: WD213 WD123
        loss gets worse with every step, forgot zero_grad: WD216
        learning rate too high, weights blow up: WD317 WD318
        Adam with betas swapped or weight_decay far too large: WD318
        pruned or masked too much, a layer is suddenly zero: WD301
    """),
    "NaN and infinity": _table("""
        loss is nan: WD142 WD121 WD211 WD202
        loss is nan in the first step: WD121 WD105 WD142 WD205
        NaN after a few hundred steps with precision=16: WD202 WD142 WD203 WD201
        nan only with 16-true or half(), fine in float32: WD205 WD202
        gradient is nan but the loss is fine: WD211
        weights are nan: WD303 WD205
        nan in the data, missing values: WD121
        nan from sqrt, norm or log at zero: WD211 WD142
        cross_entropy returns nan, all labels are -100: WD105
        ctc_loss is inf: WD105 WD142
        nan from attention, all keys are masked: WD142
        nan in the last batch of the epoch, batch of one sample: WD142 WD125
    """),
    "Half precision": _table("""
        fp16 trains worse than fp32 but nothing fails: WD201 WD206 WD203
        gradients are zero in mixed precision: WD201
        bf16-true learns much less than bf16-mixed: WD204
        weights do not change with bfloat16 parameters: WD204
        grad scaler skips every step: WD203
        loss scale keeps falling to zero: WD203 WD202
        ValueError: Attempting to unscale FP16 gradients: WD207
        gradient clipping with a grad scaler, model does not learn: WD206
        activations overflow float16, 65504: WD202
        asked for precision 16-mixed on the CPU and got something else: WD401
    """),
    "Too good to be true": _table("""
        loss falls to zero within a few steps: WD145 WD132 WD112 WD124
        validation accuracy is 100 %, suspiciously good: WD145
        target leaked into the features: WD145
        language model has almost no loss but generates garbage: WD112 WD132 WD111
        forgot the causal mask: WD132
        labels of the language model are not shifted, or shifted twice: WD112
        loss is low because most tokens are padding: WD111
        predictions depend on what else is in the batch: WD131
        transformer without batch_first mixes samples: WD131
        same random augmentation in every worker: WD124
        loader yields the same batch again and again: WD124
    """),
    "Training and validation disagree": _table("""
        validation much worse than training, BatchNorm: WD508 WD504
        model.eval() gives garbage, model.train() works: WD508 WD505
        validation score differs on every run of the same checkpoint: WD505
        validation_step calls self.train(), forgot model.eval() in validation: WD508 WD505
        model is in eval mode during training: WD504
        dropout and BatchNorm have no effect when fine-tuning a hub model: WD504
        logged accuracy is wrong, train and validation metric mixed up: WD507
    """),
    "Errors": _table("""
        CUDA error: device-side assert triggered: WD105
        Expected input_lengths to have value at most: WD105
        input_lengths must be of size batch_size: WD103
        IndexError: Target 10 is out of bounds: WD105
        labels start at 1 instead of 0: WD105
        RuntimeError: element 0 of tensors does not require grad: WD109
        RuntimeError: mat1 and mat2 must have the same dtype, but got Double and Float: WD402
        expected scalar type Float but found Double: WD402
        Expected more than 1 value per channel when training: WD125
        Expected all tensors to be on the same device, cuda:0 and cpu: WD403 WD404
        Expected to have finished reduction in the prior iteration: WD314 WD604
    """),
    "Another device": _table("""
        works on CPU, fails on MPS: WD406 WD405 WD404 WD403
        NotImplementedError: operator is not currently implemented for the MPS device: WD406
        Cannot convert a MPS Tensor to float64 dtype: WD405
        tensor attribute stays on the CPU when the model is moved: WD404
        very slow on MPS, operator falls back to the CPU: WD407
        precision not supported on MPS or TPU: WD408
        very slow on TPU, recompiles for every batch: WD409
        torch.compile recompiles all the time: WD410 WD409
        GPU idles, .item() in every step: WD411
    """),
    "Data": _table("""
        images are all black, divided by 255 twice: WD122 WD123
        forgot to normalize the inputs: WD123
        features of very different scale: WD123
        data loader does not shuffle: WD110
        first epoch is fine, then training gets worse with every epoch: WD127 WD320
        class weights make it worse, rare classes are never predicted: WD113
        probabilities given to a loss that wants logits: WD102 WD103
        softmax over the wrong dimension: WD103 WD131 WD134
        attention looks at padding although there is a mask: WD134 WD133
        forgot the attention mask or src_key_padding_mask: WD134 WD133
        view or reshape instead of permute or transpose: WD135 WD131
        masked_fill, clamp or detach has no effect, forgot to assign the result: WD136
        images look scrambled after reshaping from HWC to CHW: WD135
        labels no longer belong to their inputs, shuffled apart: WD131
        softmax in the model and again in the loss, dice: WD102
    """),
    "Memory, time and several GPUs": _table("""
        GPU memory grows every step until out of memory: WD509
        RAM leaks during training: WD509
        training hangs, no progress: WD510 WD604
        DDP hangs at the end of the epoch: WD604 WD510
        DDP is no better than a single GPU, all ranks see the same data: WD602
        ranks have different weights, replicas out of sync: WD601
        gradients are not averaged or synchronised across GPUs: WD601
        every GPU draws the same noise or time steps: WD603
        uneven number of batches per rank: WD604
    """),
}
"""Symptoms by what they have in common."""
