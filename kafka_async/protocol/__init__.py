"""Kafka's wire format: messages as typed values that become bytes and return.

`api.lookup` finds an API by key or name, `messages` holds the classes, `header` frames them.
Nothing here waits or looks at a clock.
"""
