// The metadata contexts that this server supports ("Metadata querying"), and sets of them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace gpunbd::protocol {

// The value is the id on the wire. Replies to LIST always carry 0.
enum class MetaContext : std::uint32_t {
    base_allocation = 0,  // holes
    device = 1,           // ours: the index of the device of the export (protocol/README.md)
    instance = 2,         // ours: the identity of the contents (likewise)
    dirty = 3,            // ours: what differs from a snapshot (likewise)
    cached = 4,           // ours: what of an origin is in memory (likewise)
};
inline constexpr std::size_t known_contexts = 5;
inline constexpr std::array<MetaContext, known_contexts> all_contexts{
    MetaContext::base_allocation, MetaContext::device, MetaContext::instance, MetaContext::dirty,
    MetaContext::cached};

// The whole name, except for `instance`, whose names end in '=' and an id, and for `dirty`, whose
// names end in '/' and the name of an export: full_name_of().
constexpr std::string_view name_of(MetaContext context) {
    switch (context) {
        case MetaContext::base_allocation:
            break;
        case MetaContext::device:
            return "gpunbd:device";
        case MetaContext::instance:
            return "gpunbd:instance";
        case MetaContext::dirty:
            return "gpunbd:dirty";
        case MetaContext::cached:
            return "gpunbd:cached";
    }
    return "base:allocation";
}
// `end`: the id, or the name of the other export. Empty: there is no such context without it.
inline std::string full_name_of(MetaContext context, std::string_view end) {
    std::string name(name_of(context));
    if (context != MetaContext::instance && context != MetaContext::dirty) return name;
    if (end.empty()) return {};
    return name.append(context == MetaContext::instance ? "=" : "/").append(end);
}
// "base:" in a LIST means every context whose name starts with it.
constexpr std::string_view wildcard_of(MetaContext context) {
    const std::string_view name = name_of(context);
    return name.substr(0, name.find(':') + 1);
}
constexpr std::uint32_t id_of(MetaContext context) { return static_cast<std::uint32_t>(context); }

class MetaContexts {
 public:
    constexpr MetaContexts() = default;
    constexpr MetaContexts(MetaContext only) { add(only); }
    static constexpr MetaContexts all() {
        MetaContexts all;
        for (const MetaContext context : all_contexts) all.add(context);
        return all;
    }

    constexpr void add(MetaContext context) {
        bits_ = static_cast<std::uint8_t>(bits_ | 1U << id_of(context));
    }
    constexpr bool has(MetaContext context) const { return (bits_ >> id_of(context) & 1) != 0; }
    constexpr bool none() const { return bits_ == 0; }
    constexpr std::size_t count() const {
        std::size_t count = 0;
        for (const MetaContext context : all_contexts) count += has(context) ? 1 : 0;
        return count;
    }
    bool operator==(const MetaContexts&) const = default;

 private:
    std::uint8_t bits_ = 0;
};

}  // namespace gpunbd::protocol
