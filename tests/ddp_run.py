"""A two-process run without a logger; rank zero prints what it left behind."""

import argparse
import json
import logging
import os
import warnings
from pathlib import Path

import lightning as L
import torch

from sanity_watchdog import SanityWatchdog

from .identity_runs import Net, digest


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--watched", action="store_true")
    args = parser.parse_args()
    warnings.filterwarnings("ignore")
    for name in ("lightning.pytorch", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.ERROR)
    L.seed_everything(7, verbose=False)
    net = Net()
    dogs = [SanityWatchdog(fail_on=None, every_n_steps=1)] if args.watched else []
    trainer = L.Trainer(
        accelerator="cpu",
        devices=2,
        strategy="ddp",
        max_steps=8,
        callbacks=dogs,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=args.folder,
    )
    trainer.fit(net)
    if int(os.environ.get("LOCAL_RANK", "0")) == 0:
        assert not any(d.summary.broken for d in dogs), dogs[0].summary.broken
        found = {
            "weights": digest(dict(net.named_parameters())),
            "buffers": digest(dict(net.named_buffers())),
            "optimizers": digest([o.state_dict() for o in trainer.optimizers]),
            "losses": digest(net.losses),
            "order": digest(net.order),
            "generators": digest(torch.get_rng_state()),
            "metrics": digest(dict(sorted(trainer.callback_metrics.items()))),
            "judged": len(dogs[0].summary.judged) if dogs else 0,
        }
        print("FOUND " + json.dumps(found))


if __name__ == "__main__":
    main()
