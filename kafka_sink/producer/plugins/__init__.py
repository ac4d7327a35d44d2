"""The parts that users may replace: serializers, partitioners and interceptors."""
