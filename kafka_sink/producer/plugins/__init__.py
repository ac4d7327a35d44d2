"""The parts that users may replace: serializers, partitioners and interceptors.

This package owns nothing but the objects that the configuration names. They run on the thread that calls ``send``;
interceptors receive acknowledgements on the sender thread. An error in user code must never end the sender.
"""
