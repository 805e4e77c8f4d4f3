#include "client_lib/capture/device/shape_only.h"

namespace djinn::capture {
namespace {

thread_local int depth = 0;
thread_local bool innermost_structured = false;

}  // namespace

ShapeOnlyScope::ShapeOnlyScope(bool structured)
    : outer_structured_(innermost_structured) {
  ++depth;
  innermost_structured = structured;
}

ShapeOnlyScope::~ShapeOnlyScope() {
  --depth;
  innermost_structured = outer_structured_;
}

bool ShapeOnlyScope::Active() { return depth > 0; }

bool ShapeOnlyScope::Structured() { return innermost_structured; }

}  // namespace djinn::capture
