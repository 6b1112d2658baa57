"""The option `--price`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from langgraph_toolmem.base.errors import ConfigurationError

if TYPE_CHECKING:
    from langgraph_toolmem.report.report import TokenPrice


def read_price(text: str | None, currency: str) -> TokenPrice | None:
    """Return the price that `--price IN:OUT[:CACHED]` names.

    Raises:
        ConfigurationError: the text is no price.
    """
    from langgraph_toolmem.report.report import TokenPrice

    if text is None:
        return None
    try:
        paid_in, paid_out, *rest = [float(amount) for amount in text.split(":")]
        cached = None
        # More than one further price is a ValueError too.
        if rest:
            (cached,) = rest
    except (ValueError, TypeError):
        raise ConfigurationError(
            f"--price must be IN:OUT or IN:OUT:CACHED in money per million tokens, such as 2.5:10, got {text!r}"
        ) from None
    return TokenPrice(paid_in, paid_out, currency, cached)
