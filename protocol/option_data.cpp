#include "protocol/option_data.hpp"

#include <concepts>
#include <cstdint>
#include <string>

#include "protocol/bytes.hpp"
#include "protocol/constants.hpp"
#include "protocol/text.hpp"

namespace gpunbd::protocol {
namespace {

std::string_view as_text(std::span<const std::byte> bytes) {
    return {static_cast<const char*>(static_cast<const void*>(bytes.data())), bytes.size()};
}

// Reads from the front of an option's data. Lengths are compared with the remaining length and
// never added, so they cannot overflow.
class Cursor {
 public:
    explicit Cursor(std::span<const std::byte> data) : rest_(data) {}

    template <std::unsigned_integral T>
    std::optional<T> number() {
        if (rest_.size() < sizeof(T)) return std::nullopt;
        const T value = load_be<T>(rest_.data());
        rest_ = rest_.subspan(sizeof(T));
        return value;
    }

    // A 32-bit length and that many arbitrary bytes.
    std::optional<std::string_view> raw_string() {
        const auto length = number<std::uint32_t>();
        if (!length || *length > rest_.size()) return std::nullopt;
        const std::string_view text = as_text(rest_.first(*length));
        rest_ = rest_.subspan(*length);
        return text;
    }

    std::optional<std::string_view> string() {
        const auto text = raw_string();
        if (!text || !valid_string(*text)) return std::nullopt;
        return text;
    }

    bool empty() const { return rest_.empty(); }

 private:
    std::span<const std::byte> rest_;
};

}  // namespace

std::optional<InfoRequest> decode_info_request(std::span<const std::byte> data) {
    Cursor cursor(data);
    const auto name = cursor.string();
    if (!name) return std::nullopt;
    const auto count = cursor.number<std::uint16_t>();
    if (!count) return std::nullopt;

    InfoRequest request{.export_name = *name};
    for (unsigned i = 0; i < *count; ++i) {
        const auto info = cursor.number<std::uint16_t>();
        if (!info) return std::nullopt;
        switch (static_cast<InfoType>(*info)) {
            case InfoType::name:
                request.name = true;
                break;
            case InfoType::description:
                request.description = true;
                break;
            case InfoType::block_size:
                request.block_size = true;
                break;
            case InfoType::export_:
                break;
            default:
                break;
        }
    }
    if (!cursor.empty()) return std::nullopt;
    return request;
}

std::optional<MetaQuery> decode_meta_query(std::span<const std::byte> data,
                                           const ExportInfo& info) {
    Cursor cursor(data);
    const auto name = cursor.string();
    if (!name) return std::nullopt;
    const auto count = cursor.number<std::uint32_t>();
    if (!count) return std::nullopt;

    MetaQuery query{.export_name = *name, .any = *count != 0};
    const auto compare = [&](MetaContext context, std::string_view full_name,
                             std::string_view text) {
        if (full_name.empty()) return false;
        const bool named = text == full_name;
        if (named) query.named.add(context);
        const bool matched = named || text == name_of(context) || text == wildcard_of(context);
        if (matched) query.matched.add(context);
        return matched;
    };
    const std::string instance = full_name_of(MetaContext::instance, info.instance);
    std::vector<bool> matched(info.related.size());
    for (std::uint32_t i = 0; i < *count; ++i) {
        const auto text = cursor.string();
        if (!text) return std::nullopt;
        compare(MetaContext::base_allocation, name_of(MetaContext::base_allocation), *text);
        compare(MetaContext::device, name_of(MetaContext::device), *text);
        compare(MetaContext::instance, instance, *text);
        for (std::size_t each = 0; each != info.related.size(); ++each) {
            const std::string full_name = full_name_of(MetaContext::dirty, info.related[each]);
            if (!compare(MetaContext::dirty, full_name, *text)) continue;
            matched[each] = true;
            if (query.first_related.empty() && *text == full_name) {
                query.first_related = info.related[each];
            }
        }
    }
    if (!cursor.empty()) return std::nullopt;
    for (std::size_t each = 0; each != info.related.size(); ++each) {
        if (matched[each] || !query.any) query.related.push_back(info.related[each]);
    }
    return query;
}

std::optional<std::string_view> decode_export_name(std::span<const std::byte> data) {
    const std::string_view name = as_text(data);
    if (!valid_string(name)) return std::nullopt;
    return name;
}

std::optional<std::string_view> name_asked_for(OptionType option, std::span<const std::byte> data) {
    if (option == OptionType::export_name) return as_text(data);
    return Cursor(data).raw_string();
}

}  // namespace gpunbd::protocol
