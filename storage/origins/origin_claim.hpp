#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>

namespace gpunbd::storage {

// Two caches of one origin would not see what the other one writes. So in this process, an origin
// that is written to has one cache, as long as the claim exists.
class OriginClaim {
 public:
    // `origin`: Origin::name(). `user`: an export. A text is the reason why it has to wait.
    static std::variant<OriginClaim, std::string> make(const std::string& origin,
                                                       const std::string& user, bool is_writable);

    OriginClaim() = default;  // of nothing
    OriginClaim(OriginClaim&& other) noexcept : number_(std::exchange(other.number_, 0)) {}
    OriginClaim& operator=(OriginClaim&& other) noexcept {
        std::swap(number_, other.number_);
        return *this;
    }
    ~OriginClaim();

 private:
    explicit OriginClaim(std::uint64_t number) : number_(number) {}

    std::uint64_t number_ = 0;  // 0: none
};

}  // namespace gpunbd::storage
