"""Checks of models: what each lacks on this machine.

Called by `app/ops/checks.py`. In: the models, and those that classify; out: findings. Next: `build.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

from switchboard.llm.build import flaw
from switchboard.llm.spec import ModelSpec
from switchboard.ports.checks import CheckResult, count_of, ok, warning


def check_models(models: Sequence[ModelSpec], asked: Sequence[str]) -> list[CheckResult]:
    """What each model lacks here: only a hint, since workers may have another environment."""
    found = [(model, flaw(model)) for model in models]
    remedy = "fix it where the workers run, then: switchboard models test"
    lacking = [warning(f"model {model.name}", why, remedy) for model, why in found if why is not None]
    whole = sum(why is None for _, why in found)
    order = f"in order of preference: {', '.join(asked)}" if asked else "none classifies messages"
    good = [ok("models", f"{count_of(whole, 'model')}; {order}")]
    return (good if whole else []) + lacking
