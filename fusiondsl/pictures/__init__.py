"""A graph before and after its rules on one page, with every site and near miss marked."""

from __future__ import annotations

from fusiondsl.pictures.page import page
from fusiondsl.pictures.picture import Picture, draw

__all__ = ["Picture", "draw", "page"]
