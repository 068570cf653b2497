// empty until filled
namespace braid {
void train_anchor();
void train_anchor() {}
}  // namespace braid
