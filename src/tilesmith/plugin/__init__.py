"""Compiled operators for engines that call them by name."""
