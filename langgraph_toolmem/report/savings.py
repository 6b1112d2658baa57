"""What tokens cost, and the record by the hour."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Final

from langgraph_toolmem.base.errors import ConfigurationError

_MAX_PRICE: Final = 1e12


@dataclass(frozen=True)
class TokenPrice:
    """What a model's tokens cost.

    Attributes:
        input: money per million input tokens.
        output: money per million output tokens.
        cached: money per million input tokens that the provider reads from its cache; None: as for the others.
        currency: its name, as it is to be shown.

    Raises:
        ConfigurationError: a price is not a number from 0 to 1e12, or the currency has no name.
    """

    input: float
    output: float
    currency: str = "USD"
    cached: float | None = None

    def __post_init__(self) -> None:
        prices: tuple[tuple[str, object], ...] = (("input", self.input), ("output", self.output))
        prices += () if self.cached is None else (("cached", self.cached),)
        for name, value in prices:
            if not _is_amount(value):
                raise ConfigurationError(
                    f"TokenPrice: {name} is money per million tokens, from 0 to {_MAX_PRICE:.0e}, not {value!r}."
                )
        currency: object = self.currency
        if not isinstance(currency, str) or not currency.strip() or not currency.isprintable():
            raise ConfigurationError(f"TokenPrice: currency is a name such as 'USD', not {currency!r}.")

    def of(self, input_tokens: float, output_tokens: float, cached_tokens: float = 0) -> float:
        """Money for so many tokens; `cached_tokens` of the input come from the provider's cache."""
        less = 0 if self.cached is None else cached_tokens * (self.input - self.cached)
        return (input_tokens * self.input - less + output_tokens * self.output) / 1_000_000


@dataclass(frozen=True)
class Period:
    """One hour (UTC) in which something happened, or one run.

    Attributes:
        start: its first second, in seconds since 1970.
        turns: model turns, shortcuts included.
        skipped: turns that the shortcut took.
        skipped_failed: of these, how many of the calls failed.
        right: checked proposals that were exactly what the model did.
        wrong: checked proposals that were not.
        input_tokens, output_tokens: of the model calls that were made.
    """

    start: int
    turns: int = 0
    skipped: int = 0
    skipped_failed: int = 0
    right: int = 0
    wrong: int = 0
    input_tokens: int = 0
    output_tokens: int = 0


def _is_amount(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= _MAX_PRICE


def money_in_words(amount: float, currency: str | None) -> str:
    """An amount of money, small ones to a hundredth of a cent: "1,234.50 USD", "0.0042 USD"."""
    return f"{amount:,.{2 if amount >= 1 or not amount else 4}f} {currency or ''}".rstrip()


def time_in_words(seconds: float) -> str:
    """Seconds since 1970 as date, hour and minute in UTC: "2026-03-01 14:00"."""
    return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%d %H:%M")
