// A binary heap of objects that know where they are in it, so that any of them
// can be moved or taken out in O(log n). Steady use allocates nothing.
//
// `Index` is a member of the objects that the heap sets; `Before` orders them
// strictly. Objects are not owned, and outlive their stay.
#ifndef SCHEDULER_FAIRNESS_INDEXED_HEAP_H_
#define SCHEDULER_FAIRNESS_INDEXED_HEAP_H_

#include <cstddef>
#include <utility>
#include <vector>

namespace djinn::scheduler {

template <typename T, size_t T::* Index, typename Before>
class IndexedHeap {
 public:
  // Where an object is that is in no heap.
  static constexpr size_t kOutside = static_cast<size_t>(-1);

  bool empty() const { return items_.empty(); }
  // The first one. Not empty.
  T* top() const { return items_.front(); }

  // All, in no order.
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

  // What its place depends on has changed.
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
