// empty until filled
namespace braid {
void io_anchor();
void io_anchor() {}
}  // namespace braid
