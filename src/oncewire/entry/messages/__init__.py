"""Messages that people and programs hand in or look at: `submitting` a document, `composing` a
message into a file, exchanges that were `recorded`, and bytes that are `stored`.
"""
