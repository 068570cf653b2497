#include "kernels/matmul/onednn.h"

#include <omp.h>
#include <oneapi/dnnl/dnnl.hpp>

#include <algorithm>
#include <array>
#include <new>

#include "base/check.h"
#include "kernels/common/kept.h"

namespace braid {
namespace {

// oneDNN is told once which instructions it may use, and once per thread not to start threads of its own.
void prepare_onednn() {
  static const bool isa_set = [] {
    switch (detected_isa()) {
      case Isa::kBase:
        dnnl_set_max_cpu_isa(dnnl_cpu_isa_sse41);
        break;
      case Isa::kAvx2:
        dnnl_set_max_cpu_isa(dnnl_cpu_isa_avx2);
        break;
      case Isa::kAvx512:
      case Isa::kAvx512Dot:
        dnnl_set_max_cpu_isa(dnnl_cpu_isa_avx512_core_vnni);
        break;
      case Isa::kAmx:
        break;
    }
    return true;
  }();
  static thread_local const bool single = (omp_set_num_threads(1), true);
  (void)isa_set, (void)single;
}

struct Key {
  MatmulForm form = MatmulForm::kNT;
  Into into = Into::kOverwrite;
  std::array<size_t, 6> sizes{};  // m, n, k and the strides of a, b, c
  bool operator==(const Key&) const = default;
  size_t hash() const {
    size_t h = static_cast<size_t>(form) * 2 + static_cast<size_t>(into);
    for (const size_t x : sizes) h = (h ^ x) * 0x9E3779B97F4A7C15u;
    return h >> 32;
  }
};

// A product and handles that are pointed at its operands.
struct Made {
  dnnl::matmul primitive;
  dnnl::memory a, b, c, scratch;
  size_t scratch_bytes = 0;
};

// What a thread keeps. Making a product takes about 0.2 ms; running one takes no memory.
struct Thread {
  dnnl::engine engine;
  dnnl::stream stream;
  std::unique_ptr<std::byte[]> scratch;  // for any of the products
  size_t scratch_bytes = 0;
  Kept<Key, Made, 64> made;

  bool start() noexcept {
    if (stream) return true;
    try {
      engine = dnnl::engine(dnnl::engine::kind::cpu, 0);
      stream = dnnl::stream(engine);
    } catch (...) {
      return false;
    }
    return true;
  }

  bool make(const Key& key, Made& to) noexcept {
    try {
      to = describe(key);
      if (to.scratch_bytes > scratch_bytes) {
        scratch_bytes = 0;
        scratch = std::make_unique<std::byte[]>(to.scratch_bytes + kAlign);
        scratch_bytes = to.scratch_bytes;
      }
    } catch (...) {  // not supported, or no memory
      to = {};
      return false;
    }
    return true;
  }

  std::byte* aligned_scratch() const {
    const auto at = reinterpret_cast<uintptr_t>(scratch.get());
    return scratch.get() + (kAlign - at % kAlign) % kAlign;
  }

 private:
  static constexpr size_t kAlign = 64;

  Made describe(const Key& key) const {
    using dim = dnnl::memory::dim;
    using type = dnnl::memory::data_type;
    const auto desc = [](size_t rows, size_t cols, size_t row_stride, size_t col_stride, type t) {
      return dnnl::memory::desc(
          {static_cast<dim>(rows), static_cast<dim>(cols)}, t,
          dnnl::memory::dims{static_cast<dim>(row_stride), static_cast<dim>(col_stride)});
    };
    const auto& [m, n, k, a_stride, b_stride, c_stride] = key.sizes;
    const bool ta = key.form == MatmulForm::kTN, tb = key.form == MatmulForm::kNT;
    const auto a = desc(m, k, ta ? 1 : a_stride, ta ? a_stride : 1, type::bf16),
               b = desc(k, n, tb ? 1 : b_stride, tb ? b_stride : 1, type::bf16),
               c = desc(m, n, c_stride, 1, type::f32);
    dnnl::primitive_attr attr;
    attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    if (key.into == Into::kAdd) {
      dnnl::post_ops ops;
      ops.append_sum(1.0f);
      attr.set_post_ops(ops);
    }
    const dnnl::matmul::primitive_desc how(dnnl::matmul::desc(a, b, c), attr, engine);
    const auto handle = [&](const dnnl::memory::desc& d) {
      return dnnl::memory(d, engine, DNNL_MEMORY_NONE);
    };
    return {dnnl::matmul(how),
            handle(a),
            handle(b),
            handle(c),
            handle(how.scratchpad_desc()),
            how.scratchpad_desc().get_size()};
  }
};

}  // namespace

void onednn_panel(const MatmulPanel<float>& p) {
  prepare_onednn();
  const char ta = p.form == MatmulForm::kTN ? 'T' : 'N', tb = p.form == MatmulForm::kNT ? 'T' : 'N';
  const dnnl_status_t status = dnnl_sgemm(
      ta, tb, static_cast<dnnl_dim_t>(p.m), static_cast<dnnl_dim_t>(p.n), static_cast<dnnl_dim_t>(p.k), 1.0f,
      p.a, static_cast<dnnl_dim_t>(p.a_stride), p.b, static_cast<dnnl_dim_t>(p.b_stride),
      p.into == Into::kAdd ? 1.0f : 0.0f, p.c, static_cast<dnnl_dim_t>(p.c_stride));
  check(status == dnnl_success, "dnnl_sgemm failed");
}

bool onednn_bf16_panel(const MatmulPanel<bf16>& p) noexcept {
  prepare_onednn();
  static thread_local Thread t;
  if (p.k == 0 || !t.start()) return false;  // with k = 0 oneDNN leaves C alone
  const Key key{p.form, p.into, {p.m, p.n, p.k, p.a_stride, p.b_stride, p.c_stride}};
  const Made* m = t.made.get(key, [&](Made& to) noexcept { return t.make(key, to); });
  if (!m) return false;
  const auto point = [](const dnnl::memory& at, const void* data) {
    return dnnl_memory_set_data_handle(at.get(), const_cast<void*>(data)) == dnnl_success;
  };
  if (!point(m->a, p.a) || !point(m->b, p.b) || !point(m->c, p.c) ||
      !point(m->scratch, m->scratch_bytes ? t.aligned_scratch() : nullptr))
    return false;
  const std::array<dnnl_exec_arg_t, 4> arguments{{{DNNL_ARG_SRC, m->a.get()},
                                                  {DNNL_ARG_WEIGHTS, m->b.get()},
                                                  {DNNL_ARG_DST, m->c.get()},
                                                  {DNNL_ARG_SCRATCHPAD, m->scratch.get()}}};
  const dnnl_status_t ran = dnnl_primitive_execute(m->primitive.get(), t.stream.get(),
                                                   static_cast<int>(arguments.size()), arguments.data());
  check(ran == dnnl_success && dnnl_stream_wait(t.stream.get()) == dnnl_success, "oneDNN's product failed");
  return true;
}

}  // namespace braid
