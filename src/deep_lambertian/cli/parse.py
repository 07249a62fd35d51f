"""Options of several numbers."""


def numbers(text: str, count: int, option: str, form: str) -> list[float]:
    """`count` numbers between commas, or a ValueError that shows the form they should have."""
    try:
        found = [float(part) for part in text.split(",")]
    except ValueError:
        found = []
    if len(found) != count:
        raise ValueError(f"{option}: expected {form}, got {text!r}")
    return found
