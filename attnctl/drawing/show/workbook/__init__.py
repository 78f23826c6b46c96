"""Runs and exercises as workbooks of a spreadsheet: what is computed is a live formula."""
