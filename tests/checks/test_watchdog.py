from sanity_watchdog.checks.watchdog import nothing_judged, watchdog_failed
from sanity_watchdog.evidence.watchdog import Closing, OwnFault

FIRING = [
    (watchdog_failed, OwnFault(what="check WD301", error="ValueError: no", traceback="Traceback …", step=3)),
    (nothing_judged, Closing(judged=0, batches=0, attempts=0)),
    (nothing_judged, Closing(judged=0, batches=8, attempts=2)),
    (nothing_judged, Closing(judged=0, batches=0, attempts=0, raised="ValueError")),
    (nothing_judged, Closing(judged=0, batches=8, attempts=2, raised="ValueError")),
]
QUIET = [
    (nothing_judged, Closing(judged=3, batches=8, attempts=8)),
]
