"""``python -m stallscope``: the command line."""

from stallscope._cli import main

main()
