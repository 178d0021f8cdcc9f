"""Messages that people and programs hand in or look at: `documents` become payloads, `submitting`
finds the agreement for them, `composing` makes a message into a file; exchanges that were
`recorded`, and bytes that are `stored`.
"""
