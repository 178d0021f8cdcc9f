"""Messages that people and programs hand in or look at: `documents` become payloads,
`submitting` finds their agreement, `stored` reads bytes that are kept, `evidence` proves a
delivery.
"""
