"""The cost of a model call: from a table of rates, a function, or the package genai-prices."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias

from hookline._base.errors import UsageError
from hookline._base.messages import Data, Usage

MILLION: Final = 1_000_000


class Rates(Data, frozen=True, kw_only=True):
    """The prices of a model per million tokens, in any currency."""

    input: float
    """The price of input tokens."""
    output: float
    """The price of output tokens, including reasoning."""
    cache_read: float | None = None
    """The price of input tokens that are read from a cache; by default, the price of other
    input."""
    cache_write: float | None = None
    """The price of input tokens that are written to a cache; by default, the price of other
    input."""

    def cost(self, usage: Usage) -> float:
        """Compute the cost of these tokens."""
        read, write = usage.cache_read_tokens, usage.cache_write_tokens
        total = (usage.input_tokens - read - write) * self.input
        total += read * (self.input if self.cache_read is None else self.cache_read)
        total += write * (self.input if self.cache_write is None else self.cache_write)
        return (total + usage.output_tokens * self.output) / MILLION

    if TYPE_CHECKING:  # by scripts/dev/generate.py

        def replace(
            self,
            *,
            input: float = ...,
            output: float = ...,
            cache_read: float | None = ...,
            cache_write: float | None = ...,
        ) -> Self: ...


PriceFunction: TypeAlias = Callable[[str, Usage], float | None]
"""Takes a model's name and the tokens of a call; returns the price, or None if unknown."""
Prices: TypeAlias = Mapping[str, Rates] | PriceFunction
"""A table of model names and rates, or a function."""


def price_function(prices: Prices) -> PriceFunction:
    """Make a function that computes prices; `prices` is a table or a function.

    If a table has no entry for a model, the entry whose name is the longest prefix of the model's
    name applies. For example, `gpt-5-2026-01-01` costs as much as `gpt-5`. Raises UsageError if
    `prices` is neither a table nor a function.
    """
    if callable(prices):
        return prices
    if not isinstance(prices, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise UsageError(f"price={prices!r} must be a function or a dict of model names to Rates")
    for name, rates in prices.items():
        if not isinstance(rates, Rates):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UsageError(f"price={{{name!r}: {rates!r}}}: each value must be Rates(...)")
    longest_first = sorted(prices.items(), key=lambda item: -len(item[0]))

    def price(model: str, usage: Usage) -> float | None:
        matches = [rates for name, rates in longest_first if model.startswith(name)]
        return matches[0].cost(usage) if matches else None

    return price


def genai_prices() -> PriceFunction:
    """Prices from the package genai-prices (extra `prices`), in US dollars.

    Raises UsageError if the package is not installed.
    """
    try:
        package: Any = import_module("genai_prices")
    except ImportError as exc:
        raise UsageError('genai_prices() needs a package: pip install "hookline[prices]"') from exc

    def price(model: str, usage: Usage) -> float | None:
        counts = package.Usage(
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            cache_read_tokens=usage.cache_read_tokens or None,
            cache_write_tokens=usage.cache_write_tokens or None,
        )
        try:
            return float(package.calc_price(counts, model).total_price)
        except LookupError:
            return None

    return price
