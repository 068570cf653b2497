// empty until filled
namespace braid {
void infer_anchor();
void infer_anchor() {}
}  // namespace braid
