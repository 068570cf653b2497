// empty until filled
namespace braid {
void data_anchor();
void data_anchor() {}
}  // namespace braid
