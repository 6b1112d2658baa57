"""The cost of model calls in seconds of waiting, tokens and money, and the cost of those that were saved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from langgraph_toolmem.base.checks import expect, is_number
from langgraph_toolmem.core.costs import CALL_SECONDS, TIMED_CALLS, TIMED_WORDS, WORD_SECONDS

_MAX_PRICE: Final = 1e12


@dataclass(frozen=True)
class TokenPrice:
    """The price of a model's tokens.

    Attributes:
        input: money per million input tokens.
        output: money per million output tokens.
        cached: money per million input tokens that the provider reads from its cache. Defaults to `input`.
        currency: its name for display.

    Raises:
        ConfigurationError: a price is not a number from 0 to 1e12, or the currency has no name.
    """

    input: float
    output: float
    currency: str = "USD"
    cached: float | None = None

    def __post_init__(self) -> None:
        names = ["input", "output"]
        if self.cached is not None:
            names.append("cached")
        for name in names:
            expect(self, name, f"money per million tokens, from 0 to {_MAX_PRICE:.0e}", _is_price)
        expect(self, "currency", "a name such as 'USD'", _is_printable_name)

    def of(self, input_tokens: float, output_tokens: float, cached_tokens: float = 0) -> float:
        """Return the price of so many tokens; `cached_tokens` of the input come from the provider's cache."""
        # `input_tokens` has the cached ones in it, as the usage of LangChain's messages does.
        less = 0.0
        if self.cached is not None:
            less = cached_tokens * (self.input - self.cached)
        return (input_tokens * self.input - less + output_tokens * self.output) / 1_000_000


def _is_price(value: Any) -> bool:
    return is_number(value) and 0 <= value <= _MAX_PRICE


def _is_printable_name(value: Any) -> bool:
    return str.isprintable(value) and bool(value.strip())


@dataclass(frozen=True)
class Saved:
    """Model calls that were saved, or would have been.

    Attributes:
        calls: their number.
        seconds: of waiting for the model; None if no model call was timed.
        input_tokens, output_tokens: None if the messages carry no usage.
        money: None without a price or without usage.
    """

    calls: int
    seconds: float | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    money: float | None = None

    def in_words(self, waiting: float | None, currency: str | None) -> str:
        """Return "3.1 s of 15 s waiting, 1.2 M input and 8,100 output tokens, 3.20 USD"; "" if nothing is known.

        Args:
            waiting: seconds of waiting for the model with and without these calls.
            currency: of the money.
        """
        parts = []
        if self.seconds is not None and waiting is not None:
            parts.append(f"{seconds_in_words(self.seconds)} of {seconds_in_words(waiting)} waiting for the model")
        if self.input_tokens is not None and self.output_tokens is not None:
            given, made = number_in_words(self.input_tokens), number_in_words(self.output_tokens)
            parts.append(f"{given} input and {made} output tokens")
        if self.money is not None:
            parts.append(money_in_words(self.money, currency))
        return ", ".join(parts)


NOTHING_SAVED: Final = Saved(0)


@dataclass(frozen=True)
class MeanCall:
    """The mean model call of a memory's record.

    Attributes:
        seconds: of a call whose answer asks for tools: only such calls are saved. None without a timed call.
        input_tokens, output_tokens, cached_tokens: of all calls with usage; None if there are none.
        waited: seconds of all timed model calls; None without a timed call.
    """

    seconds: float | None = None
    input_tokens: float | None = None
    output_tokens: float | None = None
    cached_tokens: float = 0.0
    waited: float | None = None

    @classmethod
    def of(cls, counters: Mapping[str, float]) -> MeanCall:
        """Read the means out of the counters of the evidence graph."""
        seconds = given = made = waited = None
        cached = 0.0
        # Calls that were answered with text have a mean of their own: they are never saved.
        timed = counters.get(TIMED_CALLS, 0)
        if timed:
            seconds = counters.get(CALL_SECONDS, 0.0) / timed
        # Not the same as `timed`: an agent that only answered with text has waited, but has no mean of saved calls.
        if timed + counters.get(TIMED_WORDS, 0):
            waited = counters.get(CALL_SECONDS, 0.0) + counters.get(WORD_SECONDS, 0.0)
        with_usage = counters.get("turns_with_tokens", 0)
        if with_usage:
            given = counters.get("tokens_in", 0) / with_usage
            made = counters.get("tokens_out", 0) / with_usage
            cached = counters.get("tokens_cached", 0) / with_usage
        return cls(seconds, given, made, cached, waited)

    def times(self, calls: int, price: TokenPrice | None) -> Saved:
        """Return the cost of so many calls."""
        # Estimated by the mean of the calls made: a saved call has neither seconds nor tokens of its own.
        seconds = given = made = money = None
        if self.seconds is not None:
            seconds = calls * self.seconds
        if self.input_tokens is not None and self.output_tokens is not None:
            given, made = round(calls * self.input_tokens), round(calls * self.output_tokens)
            if price is not None:
                of_one = price.of(self.input_tokens, self.output_tokens, self.cached_tokens)
                money = calls * of_one
        return Saved(calls, seconds, given, made, money)


# --- texts ---


def money_in_words(amount: float, currency: str | None) -> str:
    """Format an amount of money: "1,234.50 USD"; small ones to a hundredth of a cent: "0.0042 USD"."""
    digits = 2
    if 0 < amount < 1:
        digits = 4
    return f"{amount:,.{digits}f} {currency or ''}".rstrip()


def seconds_in_words(seconds: float) -> str:
    """Format a duration: "850 ms", "3.1 s", "48 s", "12 min", "3.4 h"."""
    if seconds < 1:
        return f"{1000 * seconds:,.0f} ms"
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:,.1f} h"


def number_in_words(number: float) -> str:
    """Format a number: "8,100", "1.2 M"."""
    if number < 1_000_000:
        return f"{number:,.0f}"
    return f"{number / 1_000_000:,.1f} M"
