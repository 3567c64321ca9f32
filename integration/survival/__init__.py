"""What a broken or hostile host may do: damaged, forged and full caches, killed writers, crowds, compilers that fail.

`python -m integration.survival cache|malice|killed|processes|threads|memory`; `test_survival.py` runs short forms.
"""
