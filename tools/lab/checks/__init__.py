# SPDX-License-Identifier: GPL-2.0
"""What `make check` is made of: static checks, unit tests, and the two lanes."""
