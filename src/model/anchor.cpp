// empty until filled
namespace braid {
void model_anchor();
void model_anchor() {}
}  // namespace braid
