// A binary heap of objects that store their own position, so that any object
// can be moved or removed in O(log n). Steady use allocates nothing.
//
// `Index` is the member of the objects in which the heap stores the position.
// `Before` is a strict order. The heap does not own its objects; they must
// outlive their time in it.
#ifndef SCHEDULER_FAIRNESS_INDEXED_HEAP_H_
#define SCHEDULER_FAIRNESS_INDEXED_HEAP_H_

#include <cstddef>
#include <utility>
#include <vector>

namespace djinn::scheduler {

template <typename T, size_t T::* Index, typename Before>
class IndexedHeap {
 public:
  // The position of an object that is in no heap.
  static constexpr size_t kOutside = static_cast<size_t>(-1);

  bool empty() const { return items_.empty(); }
  // Returns the first object. Requires !empty().
  T* top() const { return items_.front(); }

  // Returns all objects in no particular order.
  const std::vector<T*>& items() const { return items_; }

  static bool Contains(const T& item) { return item.*Index != kOutside; }

  void Push(T* item) {
    items_.push_back(item);
    item->*Index = items_.size() - 1;
    SiftUp(item->*Index);
  }

  void Remove(T* item) {
    const size_t hole = std::exchange(item->*Index, kOutside);
    T* const last = items_.back();
    items_.pop_back();
    if (last == item) return;
    Place(hole, last);
    Moved(last);
  }

  // Restores the order after the object's sort key changed.
  void Moved(T* item) {
    SiftUp(item->*Index);
    SiftDown(item->*Index);
  }

 private:
  void Place(size_t at, T* item) {
    items_[at] = item;
    item->*Index = at;
  }

  void SiftUp(size_t at) {
    T* const item = items_[at];
    while (at > 0 && Before()(*item, *items_[(at - 1) / 2])) {
      Place(at, items_[(at - 1) / 2]);
      at = (at - 1) / 2;
    }
    Place(at, item);
  }

  void SiftDown(size_t at) {
    T* const item = items_[at];
    for (;;) {
      size_t child = 2 * at + 1;
      if (child >= items_.size()) break;
      if (child + 1 < items_.size() &&
          Before()(*items_[child + 1], *items_[child])) {
        ++child;
      }
      if (!Before()(*items_[child], *item)) break;
      Place(at, items_[child]);
      at = child;
    }
    Place(at, item);
  }

  std::vector<T*> items_;
};

}  // namespace djinn::scheduler

#endif  // SCHEDULER_FAIRNESS_INDEXED_HEAP_H_
