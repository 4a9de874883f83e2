// The volume of a rig and its clones, each with a model of its contents. Requests go to the one
// that is in the rig.
#pragma once

#include "tests/storage/rig.hpp"
#include "tests/test.hpp"

namespace gpunbd::storage::test {

class Family {
 public:
    explicit Family(Rig& rig) : rig_(rig) {}

    std::size_t others() const { return others_.size(); }
    // Puts another volume into the rig.
    void use(std::size_t other) {
        std::swap(rig_.volume, others_[other].volume);
        std::swap(rig_.model, others_[other].model);
        std::swap(rig_.known, others_[other].known);
    }
    // Clones the volume in the rig. An empty text: it is the last of the others.
    std::string clone() {
        auto made = rig_.volume->clone("clone");
        if (auto* const reason = std::get_if<std::string>(&made)) return *reason;
        others_.push_back({.volume = std::get<std::unique_ptr<Volume>>(std::move(made)),
                           .model = rig_.model,
                           .known = rig_.known});
        return {};
    }
    // For code that shares volumes. The family owns it.
    std::shared_ptr<Volume> unowned(std::size_t other) const {
        return {others_[other].volume.get(), [](Volume*) {}};
    }
    void remove(std::size_t other) {
        others_.erase(others_.begin() + static_cast<std::ptrdiff_t>(other));
    }
    // Calls `check` with each volume in the rig.
    template <class Check>
    void for_each(Check check) {
        check();
        for (std::size_t other = 0; other != others(); ++other) {
            use(other);
            check();
            use(other);
        }
    }

 private:
    struct Member {
        std::unique_ptr<Volume> volume;
        std::vector<std::byte> model;
        std::vector<char> known;
    };
    Rig& rig_;
    std::vector<Member> others_;
};

}  // namespace gpunbd::storage::test
