"""Compiled rules inside other programs, each with one module."""
