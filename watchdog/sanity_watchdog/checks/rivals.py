"""Players that train against each other."""

from ..alerts import Severity
from ..evidence.targets import Alliance
from .check import Findings, check


@check("WD117", "allied-rivals", Severity.WARNING, Alliance)
def allied_rivals(seen: Alliance) -> Findings:
    """A generator is trained to do what its discriminator or critic wants.

    **What it sees.** Steps by hand with several optimizers: the scores that the last layer of one player, with one
    output, gives to data and to what another player makes, and which way each backward pass of the first step, or
    those before one optimizer step together, pull them (sums, signs, sigmoids and hinges, binary losses with one
    constant target, squares of distances to one). It alerts where the judge pulls data and what is made apart, and the
    maker pulls its scores the way that the judge does.

    **Why it matters.** The two agree: the generator learns to be told apart, its samples get worse and worse, and both
    losses fall, which looks like success.

    **How to fix.** Give the generator the other answer, or its critic's scores the other sign::

        loss = bce(D(G(z)), torch.zeros(n, 1))    # before: what the discriminator wants as well
        loss = bce(D(G(z)), torch.ones(n, 1))     # after

        loss = D(G(z)).mean()                     # before, where the critic minimises D(fake) - D(real)
        loss = -D(G(z)).mean()                    # after

    **When to ignore.** Never, where the one is to deceive the other.

    **Limits.** Both must be trained in one step, the first, on the discriminator's side with what is made detached.
    Answers of two classes, and targets that are noisy, are not judged.

    **Sources.** Goodfellow et al. 2014, Generative Adversarial Nets; Arjovsky et al. 2017, Wasserstein GAN.
    """
    if seen.where:
        yield allied_rivals.alert(
            seen,
            "a generator is trained to score as its discriminator wants it to: the two agree",
            hint="turn the generator's sign: bce(D(fake), ones), or -D(fake).mean() against D(fake) - D(real)",
            where=seen.where,
        )
