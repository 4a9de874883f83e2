// Memory of the code under test, which is brought back to an earlier state as a whole. So a
// schedule can end anywhere, without running destructors.
#pragma once

namespace gpunbd::interleaving::arena {

// While it is in use, operator new takes from it, and so does mmap() of page tables.
bool use(bool on);  // returns what was set before

void clear();
void save();  // the state that restore() brings back
void restore();

// Uses the arena, or does not, until the end of the scope.
class Use {
 public:
    explicit Use(bool on) : before_(use(on)) {}
    ~Use() { use(before_); }
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

 private:
    const bool before_;
};

}  // namespace gpunbd::interleaving::arena
