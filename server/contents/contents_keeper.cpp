#include "server/contents/contents_keeper.hpp"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <limits>
#include <utility>

#include "server/keeping/descriptor_name.hpp"
#include "server/keeping/environment.hpp"

namespace gpunbd::server {

namespace {

constexpr std::size_t id_digits = 12;

std::optional<std::uint32_t> number(std::string_view digits) {
    const auto value = decimal(digits);
    if (!value || *value > std::numeric_limits<std::uint32_t>::max()) return std::nullopt;
    return static_cast<std::uint32_t>(*value);
}

}  // namespace

std::string contents_id(const storage::InstanceId& instance) {
    return storage::instance_text(instance).substr(0, id_digits);
}

std::optional<ContentsName> parse_contents_name(std::string_view name) {
    if (!name.starts_with(own_prefix)) return std::nullopt;
    name.remove_prefix(own_prefix.size());
    const std::size_t slash = name.find('/');
    if (slash != id_digits || name.find_first_not_of("0123456789abcdef") != id_digits) {
        return std::nullopt;
    }
    ContentsName parsed{.id = std::string(name.substr(0, slash)), .place = {}};
    name.remove_prefix(slash + 1);
    if (name == "table") return parsed;
    const std::size_t second = name.find('/');
    if (second == std::string_view::npos) return std::nullopt;
    const auto device = number(name.substr(0, second));
    const auto slab = number(name.substr(second + 1));
    if (!device || !slab) return std::nullopt;
    parsed.place = {.device = *device, .slab = *slab};
    return parsed;
}

std::string ContentsKeeper::table_name() const {
    return fmt::format("{}{}/table", own_prefix, id_);
}

std::string ContentsKeeper::slab_name(std::uint32_t device, std::uint32_t slab) const {
    return fmt::format("{}{}/{}/{}", own_prefix, id_, device, slab);
}

bool ContentsKeeper::keep_table(int descriptor) noexcept { return give(table_name(), descriptor); }

bool ContentsKeeper::keep(std::uint32_t device, std::uint32_t slab, int descriptor) noexcept {
    return give(slab_name(device, slab), descriptor);
}

void ContentsKeeper::forget(std::uint32_t device, std::uint32_t slab) noexcept {
    const std::lock_guard lock(mutex_);
    end(slab_name(device, slab));
}

bool ContentsKeeper::give(const std::string& name, int descriptor) noexcept {
    try {
        const std::lock_guard lock(mutex_);
        if (forgotten_) return true;  // it goes on without anybody who keeps it
        names_.insert(name);
        auto wrong = store_.store(name, descriptor);
        // Until then it might not be kept, and what is written into it would be lost.
        if (!wrong) wrong = store_.barrier(patience_);
        if (!wrong) return true;
        spdlog::error("what is to outlive the server cannot be kept: {}", *wrong);
    } catch (const std::exception& error) {
        spdlog::error("what is to outlive the server cannot be kept: {}", error.what());
    }
    return false;
}

void ContentsKeeper::end(const std::string& name) noexcept {
    try {
        if (names_.erase(name) == 0) return;
        if (const auto wrong = store_.remove(name)) spdlog::warn("{}", *wrong);
    } catch (const std::exception& error) {
        spdlog::warn("{}: the supervisor keeps it still: {}", name, error.what());
    }
}

bool ContentsKeeper::keeps() const {
    const std::lock_guard lock(mutex_);
    return !forgotten_;
}

void ContentsKeeper::forget_all() noexcept {
    const std::lock_guard lock(mutex_);
    if (std::exchange(forgotten_, true)) return;
    end(table_name());  // first: slabs without a table are nobody's
    while (!names_.empty()) end(std::string(*names_.begin()));
}

}  // namespace gpunbd::server
