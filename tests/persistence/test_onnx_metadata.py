import onnx
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from regtta.persistence.onnx_metadata import read_onnx_metadata

TEXTS = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(props=st.dictionaries(TEXTS, TEXTS, max_size=6), text=TEXTS, inputs=st.integers(0, 5))
def test_metadata_equals_that_read_by_onnx(tmp_path, props, text, inputs):
    ends = [onnx.helper.make_tensor_value_info(f"x{i}", onnx.TensorProto.FLOAT, [i + 1]) for i in range(inputs)]
    model = onnx.helper.make_model(onnx.helper.make_graph([], "graph", ends, []), doc_string=text)
    onnx.helper.set_model_props(model, props)
    onnx.save(model, tmp_path / "m.onnx")
    read = {entry.key: entry.value for entry in onnx.load(tmp_path / "m.onnx").metadata_props}
    for key in {*props, "absent"}:
        found = read_onnx_metadata(tmp_path / "m.onnx", key, limit=1000)
        assert (None if found is None else found.decode()) == read.get(key)
