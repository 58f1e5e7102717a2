"""Charts as plain data: traces, layout and a table. Plotly itself runs in the browser."""
