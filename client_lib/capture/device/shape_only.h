// Shape-only mode: the thread re-enters PyTorch's own meta functions and
// composites on remote tensors to infer a result's shape. Kernels then compute
// metadata only: they record nothing and allocate nothing on a worker.
#ifndef CLIENT_LIB_CAPTURE_DEVICE_SHAPE_ONLY_H_
#define CLIENT_LIB_CAPTURE_DEVICE_SHAPE_ONLY_H_

#include <stdexcept>
#include <string>

namespace djinn::capture {

// Thrown in shape-only mode by a kernel that cannot infer a shape without data.
// Capture catches it.
class NoShape : public std::runtime_error {
 public:
  explicit NoShape(const std::string& operator_name)
      : std::runtime_error("no shape for " + operator_name) {}
};

class ShapeOnlyScope {
 public:
  // `structured` says that the scope is for a structured meta function, which
  // sizes its outputs before it calls the out= overload.
  explicit ShapeOnlyScope(bool structured);
  ~ShapeOnlyScope();
  ShapeOnlyScope(const ShapeOnlyScope&) = delete;
  ShapeOnlyScope& operator=(const ShapeOnlyScope&) = delete;

  static bool Active();
  // Returns whether the innermost scope entered a structured meta function.
  static bool Structured();

 private:
  const bool outer_structured_;
};

// Finds out whether a composite that runs in shape-only mode calls an operator
// that autocast casts. The composite then computes other values in autocast
// than without, and a worker executes without.
class CastWatch {
 public:
  // Watches the thread while the object exists.
  CastWatch();
  ~CastWatch();
  CastWatch(const CastWatch&) = delete;
  CastWatch& operator=(const CastWatch&) = delete;

  bool saw_cast() const { return active_ && saw_cast_; }

  // Reports a call in shape-only mode. Autocast ends before it calls an
  // operator of its lists.
  static void NoteCall();

 private:
  // False if autocast was off when the watch began.
  const bool active_;
  CastWatch* const outer_;
  bool saw_cast_ = false;
};

}  // namespace djinn::capture

#endif  // CLIENT_LIB_CAPTURE_DEVICE_SHAPE_ONLY_H_
