"""Pictures and pages of what was found."""

from typing import Any


def render(template: str, **values: Any) -> str:
    """One of the package's pages, filled in."""
    from jinja2 import Environment, PackageLoader, select_autoescape

    environment = Environment(loader=PackageLoader(__name__), autoescape=select_autoescape(["html"]), trim_blocks=True)
    return environment.get_template(template).render(**values)
