#include "protocol/option_data.hpp"

#include <concepts>
#include <cstdint>
#include <map>
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
        if (full_name.empty()) return;
        const bool named = text == full_name;
        if (named) query.named.add(context);
        if (named || text == name_of(context) || text == wildcard_of(context)) {
            query.matched.add(context);
        }
    };
    const std::string instance = full_name_of(MetaContext::instance, info.instance);
    const std::string dirty = std::string(name_of(MetaContext::dirty)) + "/";
    bool all_related = false;
    // By name, with its first query, since there may be thousands of queries and related exports.
    std::map<std::string_view, std::uint32_t> related;
    for (std::uint32_t i = 0; i < *count; ++i) {
        const auto text = cursor.string();
        if (!text) return std::nullopt;
        compare(MetaContext::base_allocation, name_of(MetaContext::base_allocation), *text);
        compare(MetaContext::device, name_of(MetaContext::device), *text);
        compare(MetaContext::instance, instance, *text);
        if (text->starts_with(dirty)) {
            related.try_emplace(text->substr(dirty.size()), i);
        } else if (*text == name_of(MetaContext::dirty) ||
                   *text == wildcard_of(MetaContext::dirty)) {
            all_related = true;
        }
    }
    if (!cursor.empty()) return std::nullopt;
    std::uint32_t first = *count;
    for (const std::string& each : info.related) {
        const auto found = each.empty() ? related.end() : related.find(each);
        if (found != related.end()) {
            query.named.add(MetaContext::dirty);
            if (found->second < first) {
                first = found->second;
                query.first_related = each;
            }
        }
        const bool matched = found != related.end() || (all_related && !each.empty());
        if (matched) query.matched.add(MetaContext::dirty);
        if (matched || !query.any) query.related.push_back(each);
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
