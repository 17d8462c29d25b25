"""Random numbers that a step draws for its loss."""

from ..alerts import Severity
from ..evidence.targets import DrawnNoise
from .check import Findings, check

SAID = {
    "unseen": (
        "the target is noise that the network never saw: its input holds another draw",
        "draw once: noise = torch.randn_like(x), into the input and into the loss",
    ),
    "copied": (
        "the target is the noisy input itself: the network has but to copy what it is given",
        "compare with the noise that was drawn, or with the data before it was added",
    ),
    "even": (
        "noise is drawn evenly from 0 to 1, where normal numbers are meant: its mean is a half",
        "use torch.randn_like(x) in place of torch.rand_like(x)",
    ),
    "cut": (
        "codes are drawn without a gradient: their encoder learns from the divergence alone",
        "use mean + deviation * torch.randn_like(deviation), or rsample() in place of sample()",
    ),
    "log": (
        "noise is multiplied by a log-variance, whose exponential the divergence takes for the variance",
        "multiply it by the deviation: mean + (0.5 * logvar).exp() * torch.randn_like(mean)",
    ),
    "variance": (
        "noise is multiplied by what the divergence takes for the variance, not by its root",
        "multiply it by the deviation: mean + (0.5 * logvar).exp() * torch.randn_like(mean)",
    ),
}


@check("WD116", "misplaced-noise", Severity.WARNING, DrawnNoise)
def misplaced_noise(seen: DrawnNoise) -> Findings:
    """Noise that the step draws is not the noise that its loss is about.

    **What it sees.** The first step: random numbers that it draws, and what they go into. It alerts where a prediction
    is compared with noise, or the difference between noise and data, that is not in the network's input, while other
    noise of the same shape is (diffusion, flow matching), or with that input itself: data and noise, both multiplied by
    a level of each sample's own and added; and where what is added to data of its shape, and then predicted, was drawn
    evenly from 0 to 1. And, where the divergence of a Gaussian from a fixed one is computed, where the codes of that
    Gaussian are drawn without a gradient (``sample()``, ``torch.normal``, inside ``no_grad``) and enter a layer, where
    their noise is drawn evenly from 0 to 1, and where it is multiplied by the logarithm of the variance or by the
    variance, in place of its root.

    **Why it matters.** Nobody can predict noise that is shown nowhere: the best answer is its mean, zero. To copy an
    input teaches nothing of data, and the loss falls quickly. Codes without a gradient teach an encoder nothing but to
    be like the prior. With the wrong scale codes and divergence speak of two distributions, and what is sampled from
    the prior later is neither.

    **How to fix.** ::

        out = net(add_noise(x, t), t)                  # before: add_noise draws noise of its own
        loss = F.mse_loss(out, torch.randn_like(x))
        noise = torch.randn_like(x)                    # after
        out = net(add_noise(x, t, noise), t)
        loss = F.mse_loss(out, noise)

        z = Normal(mean, deviation).sample()           # before
        z = Normal(mean, deviation).rsample()          # after

        z = mean + logvar * torch.randn_like(mean)                  # before
        z = mean + (0.5 * logvar).exp() * torch.randn_like(mean)    # after

    **When to ignore.** Where the encoder is meant to learn from elsewhere. Samples whose likelihood is in the loss
    (score functions, policies) are left alone.

    **Limits.** Not where the step is compiled, nor noise that a collate function or data set draws. Variances are
    compared where exponentials make them.

    **Sources.** Ho et al. 2020, Denoising Diffusion Probabilistic Models, algorithm 1; Kingma and Welling 2014,
    Auto-Encoding Variational Bayes, 2.4.
    """
    if seen.kind in SAID:
        message, hint = SAID[seen.kind]
        yield misplaced_noise.alert(
            seen,
            message,
            hint=hint + (f" (drawn at {seen.origin})" if seen.origin else ""),
            where=seen.where,
            evidence={"kind": seen.kind},
        )
