# SPDX-License-Identifier: GPL-2.0
"""Measures what one I/O of a guest costs its host, path by path."""
