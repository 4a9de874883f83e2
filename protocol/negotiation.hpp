// Fixed newstyle negotiation without I/O: takes bytes and returns what to do next. Everything that
// was agreed is one value, so that STARTTLS can reset it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "protocol/export_info.hpp"
#include "protocol/meta_context.hpp"

namespace gpunbd::protocol {

// The result of the negotiation, for the transmission phase.
struct NegotiatedOptions {
    Headers headers = Headers::simple;
    MetaContexts contexts = {};  // agreed for this export
    std::string related = {};    // the other export of MetaContext::dirty
    ExportInfo export_info = {};
};

// The requests of a client so far, for the log.
struct Asked {
    std::optional<std::string> export_name = {};  // the last one, as received: any bytes
    std::string refusal = {};                     // as sent to the client; empty: granted
    std::string words = {};                       // all of that in printable ASCII; empty: nothing
};

// Whether TLS can or must be started by STARTTLS ("TLS support"): NOTLS, SELECTIVETLS, FORCEDTLS.
enum class TlsMode { off, optional, required };

class Negotiation {
 public:
    // `directory` must outlive the negotiation.
    explicit Negotiation(const ExportDirectory& directory, TlsMode tls = TlsMode::off);

    enum class Next {
        receive,    // send output(), then feed more bytes
        more,       // send output(), then feed the unused bytes again, even if there are none
        wait,       // until ExportDirectory::ready(), then as more
        transmit,   // send output(), then the transmission phase starts with negotiated()
        start_tls,  // send output(), do the TLS handshake, call enter_tls(), then feed decrypted
                    // bytes
        close,      // send as much of output() as possible, then close
    };

    // The bytes to send before anything is received.
    std::vector<std::byte> greeting() const;

    // Takes bytes in pieces of any length and answers at most one option, or one part of LIST, per
    // call. `used` is the number of bytes consumed: all of them if the result is Next::receive.
    // After Next::transmit the remaining bytes are the first request; after Next::close they are
    // ignored. Calls after Next::transmit or Next::close consume nothing and return the same
    // result. Bytes that follow a granted STARTTLS were sent in plain text and result in
    // Next::close.
    Next feed(std::span<const std::byte> bytes, std::size_t& used);

    // Returns the bytes to send and clears them. At most max_output bytes if called after every
    // feed().
    static constexpr std::size_t max_output = std::size_t{17} << 10;
    std::vector<std::byte> take_output();

    // After Next::start_tls, once TLS is established: forgets everything but the client's flags.
    void enter_tls();

    // Answers ERR_SHUTDOWN to everything but ABORT from now on. EXPORT_NAME, which has no error
    // reply, closes.
    void shut_down();

    // After Next::transmit.
    const NegotiatedOptions& negotiated() const;

    // Why the connection is being closed, as one log line in printable ASCII; empty for a plain
    // ABORT.
    const std::string& reason() const;
    Asked asked() const;

 private:
    enum class Stage { client_flags, option_header, option_data, drained_data };

    static constexpr std::size_t client_flags_size = 4;
    static constexpr std::size_t option_header_size = 16;

    std::size_t take(std::span<const std::byte> bytes);
    std::size_t gather(std::span<const std::byte> bytes, std::size_t wanted);
    void on_client_flags();
    void on_option_header();
    void on_option();
    // True if the client must start TLS first, for any option or for this export.
    bool tls_is_missing() const { return tls_ == TlsMode::required && !inside_tls_; }
    bool tls_is_missing_for(const ExportInfo& info) const {
        return tls_ == TlsMode::optional && info.tls_required && !inside_tls_;
    }
    std::optional<ExportInfo> context_subject() const;
    bool has_other_contents(const ExportInfo& info, std::string_view asked_name) const;

    void on_export_name();
    void on_list();
    void go_on_listing();
    void on_starttls();
    void on_info(bool go);
    void on_structured_reply();
    void on_extended_headers();
    void on_list_meta_context();
    void on_set_meta_context();

    void enter_transmission(const ExportInfo& info, std::string_view asked_name);
    bool is_ready(std::string_view name);
    void refuse(OptionReply error, std::string_view message);
    void close(std::string reason);

    const ExportDirectory* directory_;
    TlsMode tls_;
    bool inside_tls_ = false;
    Stage stage_ = Stage::client_flags;
    Next next_ = Next::receive;
    bool fixed_newstyle_ = false;
    bool no_zeroes_ = false;
    bool shut_down_ = false;

    std::array<std::byte, option_header_size> header_{};
    std::size_t header_filled_ = 0;  // bytes
    std::uint32_t options_ = 0;      // seen so far
    std::uint32_t option_ = 0;       // the type of the current one
    std::uint32_t option_length_ = 0;
    std::uint32_t drained_ = 0;
    std::vector<std::byte> data_;

    // What SET_META_CONTEXT selected, and the export for which it holds.
    MetaContexts contexts_;
    std::string context_export_;
    std::string context_instance_;
    std::string context_related_;
    std::optional<Listing> listing_;  // while LIST is being answered
    bool listed_ = false;
    bool answered_ = false;             // an option has been answered in this feed()
    bool waiting_ = false;              // for the export of an option, which is then repeated
    std::optional<std::string> asked_;  // the export named last in any option
    std::string refusal_;               // why that option failed
    std::vector<std::byte> output_;
    NegotiatedOptions negotiated_;
    std::string reason_;
};

}  // namespace gpunbd::protocol
