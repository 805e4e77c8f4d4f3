// Shape-only mode: the thread re-enters PyTorch's own meta functions and
// composites on remote tensors to learn a result's shape. Kernels then compute
// metadata, record nothing and allocate nothing remote.
#ifndef CLIENT_LIB_CAPTURE_DEVICE_SHAPE_ONLY_H_
#define CLIENT_LIB_CAPTURE_DEVICE_SHAPE_ONLY_H_

#include <stdexcept>
#include <string>

namespace djinn::capture {

// Thrown inside shape-only mode by whatever has no shape without data or a
// rule; never leaves capture.
class NoShape : public std::runtime_error {
 public:
  explicit NoShape(const std::string& operator_name)
      : std::runtime_error("no shape for " + operator_name) {}
};

class ShapeOnlyScope {
 public:
  // `structured`: entered through a structured meta function, which sizes its
  // outputs before it calls the out= variant.
  explicit ShapeOnlyScope(bool structured);
  ~ShapeOnlyScope();
  ShapeOnlyScope(const ShapeOnlyScope&) = delete;
  ShapeOnlyScope& operator=(const ShapeOnlyScope&) = delete;

  static bool Active();
  // Whether the innermost entry was through a structured meta function.
  static bool Structured();

 private:
  const bool outer_structured_;
};

}  // namespace djinn::capture

#endif  // CLIENT_LIB_CAPTURE_DEVICE_SHAPE_ONLY_H_
