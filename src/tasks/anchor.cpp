// empty until filled
namespace braid {
void tasks_anchor();
void tasks_anchor() {}
}  // namespace braid
