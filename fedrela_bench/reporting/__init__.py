"""Reports: a study's MLflow runs, selected and compared by a spec, beside published numbers.

from fedrela_bench.reporting.report import render_report
render_report(Path("studies/digits_lt"))                      # study.md, .csv, .tex, .html and figures
"""
