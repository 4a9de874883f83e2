// The metadata contexts that this server knows ("Metadata querying"), and sets of them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace gpunbd::protocol {

// The value is the id on the wire, unique for each; a reply to LIST carries 0 in any case.
enum class MetaContext : std::uint32_t {
    base_allocation = 0,  // is it a hole?
    device = 1,           // ours: which of the export's devices holds it? (protocol/README.md)
    instance = 2,         // ours: are these the contents that the client knows? (likewise)
};
inline constexpr std::size_t known_contexts = 3;
inline constexpr std::array<MetaContext, known_contexts> all_contexts{
    MetaContext::base_allocation, MetaContext::device, MetaContext::instance};

// The whole name, but for `instance`, whose names end in '=' and the id: full_name_of().
constexpr std::string_view name_of(MetaContext context) {
    switch (context) {
        case MetaContext::base_allocation:
            break;
        case MetaContext::device:
            return "gpunbd:device";
        case MetaContext::instance:
            return "gpunbd:instance";
    }
    return "base:allocation";
}
// Empty: an export whose contents have that id has no such context. `instance` may be empty.
inline std::string full_name_of(MetaContext context, std::string_view instance) {
    std::string name(name_of(context));
    if (context != MetaContext::instance) return name;
    if (instance.empty()) return {};
    return name.append("=").append(instance);
}
// "base:": where contexts are listed, every one whose name begins so.
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
