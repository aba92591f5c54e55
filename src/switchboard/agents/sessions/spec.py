"""What the settings say of one model: `[[models]]`.

Made by `app/settings.py`, read by `build.py` and `dispatch.py`. No SDK is imported for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, get_args

from switchboard.agents.sessions.port import ApiKind, CliKind, Kind
from switchboard.core.policy.budget import Price

API_KINDS: Final[tuple[ApiKind, ...]] = get_args(ApiKind)
CLI_KINDS: Final[tuple[CliKind, ...]] = get_args(CliKind)

Passed = Literal[
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "all_proxy",
    "no_proxy",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "NODE_EXTRA_CA_CERTS",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
]
"""What may be let through to a program: how the network is reached and whom it trusts, and no secret of ours."""


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """One model and how it is reached. Seconds; prices in dollars per million tokens, None where nothing is paid.

    `base_url` None: the provider's own. The key comes from the variable `api_key_env` or from `api_key_file`; without
    either none is sent. `profile` "local" is for servers on one's own machine (LM Studio, Ollama, llama.cpp, vLLM).
    `context` in tokens: so much, question and answer together, this model reads; None where that is no matter.
    `program` is the command line's, where it is not found under its usual name; `pass_env` names the variables of ours
    that it gets, for otherwise it gets none.
    """

    name: str
    kind: Kind
    model: str
    base_url: str | None = None
    api_key_env: str | None = None
    api_key_file: Path | None = None
    timeout: float = 60.0
    concurrency: int = 4
    max_tokens: int = 1024
    context: int | None = None
    price_in: float | None = None
    price_out: float | None = None
    profile: Literal["local"] | None = None
    program: str | None = None
    pass_env: tuple[Passed, ...] = ()

    @property
    def price(self) -> Price | None:
        """In micro-dollars per million tokens."""
        if self.price_in is None and self.price_out is None:
            return None
        return Price(round((self.price_in or 0.0) * 1e6), round((self.price_out or 0.0) * 1e6))
