// Memory for the temporaries of one pass: taken in order, given back all at once or back to a mark.
//
//   Arena arena;
//   Arena::Mark m = arena.mark();
//   Mat<float> x = arena.mat(rows, cols);     // uninitialised; NaN in poisoned builds
//   arena.release(m);
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "tensor/memory.h"
#include "tensor/tensor.h"

namespace braid {

#ifdef BRAID_POISON
inline constexpr bool kPoison = true;
#else
inline constexpr bool kPoison = false;
#endif

class Arena {
 public:
  struct Mark {
    size_t block = 0, used = 0;
  };

  explicit Arena(bool poison = kPoison) : poison_(poison) {}

  template <class T>
  std::span<T> take(size_t count) {
    return {static_cast<T*>(take_bytes(count * sizeof(T))), count};
  }
  Mat<float> mat(size_t rows, size_t cols) { return {take<float>(rows * cols).data(), rows, cols}; }

  Mark mark() const { return {block_, blocks_.empty() ? 0 : blocks_[block_].used}; }
  void release(Mark m);
  void reset() { release({}); }

  size_t peak_bytes() const { return peak_; }  // the most that was ever in use

 private:
  struct Block {
    RawMemory memory;
    size_t size, used = 0;
  };
  void* take_bytes(size_t bytes);

  std::vector<Block> blocks_;
  size_t block_ = 0, in_use_ = 0, peak_ = 0;
  bool poison_;
};

}  // namespace braid
