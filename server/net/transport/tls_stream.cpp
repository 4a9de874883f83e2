#include "server/net/transport/tls_stream.hpp"

#include <fmt/format.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "config/quote.hpp"
#include "server/net/credentials/certificate_folder.hpp"
#include "storage/assertions/assert.hpp"

namespace gpunbd::server {

namespace {

constexpr std::size_t record = SSL3_RT_MAX_PLAIN_LENGTH;  // bytes of payload
constexpr std::size_t around_record = 256;  // header, nonce, tag, and an alert or a key update
constexpr std::size_t held_by_openssl = 48 * 1024;  // bytes, about one SSL object

// The work of receive() before other clients get their turn, in bytes of payload; 256 KiB take
// about 100 us. A key update takes 8 us. A record of one byte takes 0.4 us but counts for more, so
// that several clients that send only such records delay others by less than 5 times.
constexpr std::size_t max_work = 256 * 1024;
constexpr std::size_t record_work = 4 * 1024;
constexpr std::size_t control_work = 16 * 1024;
// Bytes, before the client is served: the longest record, and alerts.
constexpr std::size_t small_buffer = record + 4 * around_record;

// Reads of a handshake, two per record. The longest certificate chain that OpenSSL accepts has 100
// KiB, which takes 400 reads in records of 512 bytes, the smallest that clients negotiate.
constexpr std::uint32_t max_handshake_reads = 4096;
constexpr std::uint32_t handshake_reads_at_once = 32;  // before others get their turn

// --- A BIO that reads and writes records in the buffers of a stream.

TlsStream& stream_of(BIO* bio) { return *static_cast<TlsStream*>(::BIO_get_data(bio)); }

int read_bio(BIO* bio, char* into, int length) {
    BIO_clear_retry_flags(bio);
    return stream_of(bio).take_record({into, static_cast<std::size_t>(length)}, *bio);
}

int write_bio(BIO* bio, const char* from, int length) {
    BIO_clear_retry_flags(bio);
    return stream_of(bio).put_records({from, static_cast<std::size_t>(length)});
}

long control_bio(BIO* bio, int command, long, void*) {
    if (command == BIO_CTRL_FLUSH) return 1;
    if (command == BIO_CTRL_EOF) return stream_of(bio).ended() ? 1 : 0;
    return 0;
}

const BIO_METHOD* bio_method() {
    static const BIO_METHOD* const method = [] {
        BIO_METHOD* const made =
            ::BIO_meth_new(::BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "records");
        if (made == nullptr) throw std::bad_alloc();
        ::BIO_meth_set_read(made, read_bio);
        ::BIO_meth_set_write(made, write_bio);
        ::BIO_meth_set_ctrl(made, control_bio);
        return made;
    }();
    return method;
}

BIO& make_bio(TlsStream& stream) {
    BIO* const bio = ::BIO_new(bio_method());
    if (bio == nullptr) {
        ::ERR_clear_error();
        throw std::bad_alloc();
    }
    ::BIO_set_data(bio, &stream);
    ::BIO_set_init(bio, 1);
    return *bio;
}

// For the socket's own BIO, which does the handshake so that OpenSSL can hand sending to the
// kernel. Receiving in the kernel is refused: see tls_stream.hpp. Also, OpenSSL 3.0 cannot update
// the receive keys of TLS 1.3 in the kernel.
long watch_handshake(BIO* bio, int operation, const char*, std::size_t, int command, long sending,
                     int returned, std::size_t*) {
    constexpr int give_to_kernel = 72;  // BIO_CTRL_SET_KTLS, which is in no header
    if (operation == BIO_CB_CTRL && command == give_to_kernel && sending == 0) return 0;
    auto* const stream = reinterpret_cast<TlsStream*>(::BIO_get_callback_arg(bio));
    if (operation == BIO_CB_READ && !stream->may_read_handshake()) {
        BIO_clear_retry_flags(bio);
        BIO_set_retry_read(bio);
        return -1;
    }
    if (operation == (BIO_CB_READ | BIO_CB_RETURN) && returned > 0) stream->has_read_handshake();
    return returned;
}

// --- names

void add_name(std::vector<std::string>& names, const ASN1_STRING* text) {
    unsigned char* utf8 = nullptr;
    const int length = ::ASN1_STRING_to_UTF8(&utf8, text);
    if (length <= 0) return;
    const std::unique_ptr<unsigned char, void (*)(unsigned char*)> owned(
        utf8, [](unsigned char* bytes) { OPENSSL_free(bytes); });
    std::string name(reinterpret_cast<const char*>(utf8), static_cast<std::size_t>(length));
    if (name.find('\0') != std::string::npos) return;  // an attempt to look like another name
    if (std::find(names.begin(), names.end(), name) == names.end())
        names.push_back(std::move(name));
}

std::vector<std::string> names_of(const X509& certificate) {
    std::vector<std::string> names;
    const X509_NAME* const subject = ::X509_get_subject_name(&certificate);
    for (int at = -1;;) {
        at = ::X509_NAME_get_index_by_NID(subject, NID_commonName, at);
        if (at < 0) break;
        add_name(names, ::X509_NAME_ENTRY_get_data(::X509_NAME_get_entry(subject, at)));
    }
    const std::unique_ptr<GENERAL_NAMES, void (*)(GENERAL_NAMES*)> others(
        static_cast<GENERAL_NAMES*>(
            ::X509_get_ext_d2i(&certificate, NID_subject_alt_name, nullptr, nullptr)),
        [](GENERAL_NAMES* all) { ::GENERAL_NAMES_free(all); });
    for (int i = 0; others != nullptr && i < sk_GENERAL_NAME_num(others.get()); ++i) {
        const GENERAL_NAME* const name = sk_GENERAL_NAME_value(others.get(), i);
        if (name->type == GEN_DNS) add_name(names, name->d.dNSName);
    }
    return names;
}

std::size_t length_of(std::span<const iovec> pieces) {
    std::size_t length = 0;
    for (const iovec& each : pieces) length += each.iov_len;
    return length;
}

}  // namespace

void TlsStream::Free::operator()(ssl_st* ssl) const noexcept { ::SSL_free(ssl); }

TlsStream::TlsStream(std::shared_ptr<const TlsContext> context, int fd,
                     Pool<ReceiveBuffer>& buffers, std::uint64_t records_per_key)
    : context_(std::move(context)),
      fd_(fd),
      buffers_(buffers),
      ssl_(::SSL_new(&context_->native())),
      records_per_key_(records_per_key) {
    // Kernel TLS works only if OpenSSL owns the socket, so OpenSSL does the handshake on it.
    if (ssl_ == nullptr || ::SSL_set_fd(ssl_.get(), fd) != 1 ||
        SSL_set_app_data(ssl_.get(), this) != 1) {
        ::ERR_clear_error();
        throw std::bad_alloc();
    }
    BIO* const socket = ::SSL_get_rbio(ssl_.get());
    ::BIO_set_callback_arg(socket, reinterpret_cast<char*>(this));
    ::BIO_set_callback_ex(socket, watch_handshake);
}

TlsStream::~TlsStream() {
    ssl_.reset();  // it may still write to a buffer
    for (ReceiveBuffer* buffer : {in_, out_}) {
        if (buffer == nullptr) continue;
        buffer->consume(buffer->bytes().size());
        give_back(buffer);
    }
}

TlsStream& TlsStream::of(ssl_st& ssl) { return *static_cast<TlsStream*>(SSL_get_app_data(&ssl)); }

// --- the handshake

bool TlsStream::may_read_handshake() noexcept {
    return handshake_reads_left_ != 0 && handshake_reads_ != max_handshake_reads;
}

void TlsStream::has_read_handshake() noexcept {
    GPUNBD_ASSERT(handshake_reads_left_ != 0, "the handshake reads what it may");
    --handshake_reads_left_;
    ++handshake_reads_;
}

Transport::Result TlsStream::shake_hands() {
    GPUNBD_ASSERT(!established_, "a handshake that has succeeded is over");
    handshake_reads_left_ = handshake_reads_at_once;
    const int returned = ::SSL_accept(ssl_.get());
    if (returned == 1) {
        leave_to_kernel();
        established_ = true;
        return {};
    }
    const long verified = ::SSL_get_verify_result(ssl_.get());
    if (::SSL_get_error(ssl_.get(), returned) == SSL_ERROR_SSL) {
        if (verified != X509_V_OK) {
            failure_ = fmt::format("the client's certificate: {}",
                                   ::X509_verify_cert_error_string(verified));
        } else if (!psk_user_.empty()) {
            failure_ = fmt::format("{} ({}user {})", take_openssl_error("no reason given"),
                                   unknown_user_ ? "unknown " : "", config::in_quotes(psk_user_));
        } else {
            failure_ = take_openssl_error("no reason given");
        }
    }
    Transport::Result result = outcome(returned);
    if (result.ended && failure_.empty()) failure_ = "the client hung up";
    if (result.wait != Transport::Wait::readable) return result;
    if (handshake_reads_ == max_handshake_reads) {
        failure_ = "the client sent too many records";
        return {.ended = true, .error = EPROTO};
    }
    if (handshake_reads_left_ == 0) return {};  // there may be more to read
    return result;
}

// Received records pass through our own buffers. So do sent ones, unless the kernel has the key.
void TlsStream::leave_to_kernel() {
    ::BIO_set_callback_ex(::SSL_get_rbio(ssl_.get()), nullptr);
    kernel_sends_ = BIO_get_ktls_send(::SSL_get_wbio(ssl_.get()));
    ::SSL_set0_rbio(ssl_.get(), &make_bio(*this));
    if (!kernel_sends_) ::SSL_set0_wbio(ssl_.get(), &make_bio(*this));
}

unsigned int TlsStream::find_key(const char* user, std::span<unsigned char> room) noexcept {
    try {
        psk_user_ = user == nullptr ? "" : user;
    } catch (const std::bad_alloc&) {
        return 0;
    }
    const PskKeys::Found found = context_->psk()->find(psk_user_);
    unknown_user_ = !found.known;
    if (found.key.size() > room.size()) return 0;
    std::memcpy(room.data(), found.key.data(), found.key.size());
    return static_cast<unsigned int>(found.key.size());
}

// There is no resumption, so a session that existed before is a pre-shared key (TLS 1.3).
bool TlsStream::uses_psk() const {
    return ::SSL_session_reused(ssl_.get()) == 1 ||
           ::SSL_CIPHER_get_auth_nid(::SSL_get_current_cipher(ssl_.get())) == NID_auth_psk;
}

TlsIdentity TlsStream::identity() const {
    if (uses_psk()) return {.names = {}, .psk_user = psk_user_};
    const X509* const certificate = ::SSL_get0_peer_certificate(ssl_.get());
    if (certificate == nullptr || !context_->verifies_clients() ||
        ::SSL_get_verify_result(ssl_.get()) != X509_V_OK) {
        return {};
    }
    return {.names = names_of(*certificate), .psk_user = {}};
}

std::string TlsStream::text() const {
    return fmt::format("TLS {}, {}, {}",
                       ::SSL_version(ssl_.get()) == TLS1_3_VERSION ? "1.3" : "1.2",
                       ::SSL_CIPHER_standard_name(::SSL_get_current_cipher(ssl_.get())),
                       kernel_sends_ ? "kernel sending" : "in the process");
}

// --- records in and out

ReceiveBuffer& TlsStream::take_buffer() {
    return serving_ ? buffers_.take() : *new ReceiveBuffer(small_buffer);
}

void TlsStream::give_back(ReceiveBuffer*& buffer) noexcept {
    GPUNBD_ASSERT(buffer->bytes().empty(), "a buffer is given back when it is empty");
    if (buffer->size() == ReceiveBuffer::capacity) {
        buffers_.give_back(*buffer);
    } else {
        delete buffer;
    }
    buffer = nullptr;
}

// Gives OpenSSL the bytes of one record at most, so that it returns to receive() after each record
// of any type.
int TlsStream::take_record(std::span<char> into, bio_st& bio) noexcept {
    if (in_ == nullptr) return -1;  // only receive() reads
    if (record_over_) {
        BIO_set_retry_read(&bio);
        return -1;
    }
    into = into.first(std::min(into.size(), bounds_.left()));
    if (!in_->bytes().empty()) {
        into = into.first(std::min(into.size(), in_->bytes().size()));
        std::memcpy(into.data(), in_->bytes().data(), into.size());
        in_->consume(into.size());
    } else {
        const std::span<std::byte> room = in_->room(in_->size());
        std::array<iovec, 2> pieces{{{.iov_base = into.data(), .iov_len = into.size()},
                                     {.iov_base = room.data(), .iov_len = room.size()}}};
        const Transport::Result got = Transport::receive_from(fd_, pieces);
        if (got.wait != Transport::Wait::none) {
            BIO_set_retry_read(&bio);
            return -1;
        }
        if (got.ended) {
            errno = got.error;
            peer_has_ended_ = got.error == 0;
            return peer_has_ended_ ? 0 : -1;
        }
        into = into.first(std::min(into.size(), got.bytes));
        in_->received(got.bytes - into.size());
    }
    record_over_ = bounds_.take(into);
    return static_cast<int>(into.size());
}

int TlsStream::put_records(std::span<const char> from) noexcept {
    try {
        if (out_ == nullptr) out_ = &take_buffer();
    } catch (const std::bad_alloc&) {
        return -1;
    }
    const std::span<std::byte> room = out_->room(from.size());
    if (room.size() < from.size()) return -1;  // send() leaves enough room
    std::memcpy(room.data(), from.data(), from.size());
    out_->received(from.size());
    return static_cast<int>(from.size());
}

// The result of a failed OpenSSL call.
Transport::Result TlsStream::outcome(int returned) {
    const int error_number = errno;
    const int why = ::SSL_get_error(ssl_.get(), returned);
    if (why == SSL_ERROR_SSL && established_ && failure_.empty()) {
        failure_ = "TLS: " + take_openssl_error("no reason given");
    }
    ::ERR_clear_error();
    switch (why) {
        case SSL_ERROR_WANT_READ:
            return {.wait = Transport::Wait::readable};
        case SSL_ERROR_WANT_WRITE:
            return {.wait = Transport::Wait::writable};
        case SSL_ERROR_ZERO_RETURN:
            return {.ended = true};
        case SSL_ERROR_SYSCALL:
            return {.ended = true, .error = error_number};
        default:
            return {.ended = true, .error = EBADMSG};
    }
}

// Returns the cost of the record that was just completed, if any. SSL_read() returned `got` of at
// most `room` bytes.
std::size_t TlsStream::cost_of_record(std::size_t got, std::size_t room) const {
    if (!record_over_) return 0;
    const std::size_t length = bounds_.length();
    // OpenSSL searches for the end of padding byte by byte.
    const std::size_t padding = got < room ? length - std::min(got, length) : 0;
    return std::max(length, record_work) + padding;
}

Transport::Result TlsStream::receive(std::span<iovec> into) {
    GPUNBD_ASSERT(established_, "payload is received after the handshake");
    if (!failure_.empty()) return {.ended = true, .error = EPROTO};
    if (in_ == nullptr) in_ = &take_buffer();
    ::ERR_clear_error();  // OpenSSL would report a stale error of another call
    Transport::Result all{.more = true};
    for (const iovec& piece : into) {
        for (std::size_t filled = 0; filled != piece.iov_len;) {
            if (all.work >= max_work) return all;
            const std::size_t room = piece.iov_len - filled;
            std::size_t got = 0;
            record_over_ = false;
            const int returned =
                ::SSL_read_ex(ssl_.get(), static_cast<char*>(piece.iov_base) + filled, room, &got);
            if (returned == 1) {
                filled += got;
                all.bytes += got;
                all.work += cost_of_record(got, room);
                control_.received(got);
                continue;
            }
            Transport::Result result = outcome(returned);
            if (record_over_ && result.wait == Transport::Wait::readable) {
                all.work += cost_of_record(0, 0) + control_work;
                if (control_.take(ControlAllowance::Clock::now())) continue;
                failure_ = fmt::format(
                    "the client sent more TLS records without data (key updates, alerts, "
                    "renegotiations) than permitted: over {} within {} MiB",
                    ControlAllowance::most, ControlAllowance::payload >> 20);
                result = {.ended = true, .error = EPROTO};
            }
            end_receiving(result.ended);
            result.more = all.more = result.ended;  // the end is reported after the bytes
            return all.bytes != 0 ? all : result;
        }
    }
    return all;
}

void TlsStream::end_receiving(bool ended) {
    if (ended) flush();  // the alert with the cause
    if (in_ != nullptr && in_->bytes().empty()) give_back(in_);
}

bool TlsStream::room_for_record() const {
    return out_ == nullptr || out_->bytes().size() + record + around_record <= out_->size();
}

bool TlsStream::seal(std::span<const std::byte> plain) {
    if (++records_ > records_per_key_ && ::SSL_version(ssl_.get()) == TLS1_3_VERSION) {
        ::SSL_key_update(ssl_.get(), SSL_KEY_UPDATE_NOT_REQUESTED);
        records_ = 1;
    }
    std::size_t written = 0;
    if (::SSL_write_ex(ssl_.get(), plain.data(), plain.size(), &written) != 1) return false;
    sealed_ += written;
    return written == plain.size();
}

// Seals as many full records as fit. Long pieces are sealed in place; short ones and the ends of
// long ones are copied together.
bool TlsStream::seal_some(std::span<const iovec> from) {
    std::array<std::byte, record> together;
    std::size_t filled = 0;
    for (const iovec& piece : from) {
        std::span<const std::byte> left(static_cast<const std::byte*>(piece.iov_base),
                                        piece.iov_len);
        while (!left.empty()) {
            if (filled == 0 && !room_for_record()) return true;
            if (filled == 0 && left.size() >= record) {
                if (!seal(left.first(record))) return false;
                left = left.subspan(record);
                continue;
            }
            const std::size_t taken = std::min(left.size(), record - filled);
            std::memcpy(together.data() + filled, left.data(), taken);
            left = left.subspan(taken);
            filled += taken;
            if (filled != record) continue;
            if (!seal(together)) return false;
            filled = 0;
        }
    }
    return filled == 0 || seal(std::span(together).first(filled));
}

Transport::Result TlsStream::send(std::span<iovec> from) {
    GPUNBD_ASSERT(established_, "payload is sent after the handshake");
    if (kernel_sends_) return Transport::send_to(fd_, from);
    GPUNBD_ASSERT(sealed_ <= length_of(from), "sealed bytes are offered until they are sent");
    if (sealed_ == 0 && !seal_some(from)) {
        ::ERR_clear_error();
        return {.ended = true, .error = EBADMSG};
    }
    Transport::Result result = flush();
    if (result.ended || result.wait != Transport::Wait::none) return result;
    result.bytes = std::exchange(sealed_, 0);
    return result;
}

// Sends the buffer. Without wait or end in the result, all of it has been sent.
Transport::Result TlsStream::flush() noexcept {
    while (out_ != nullptr) {
        const std::span<const std::byte> left = out_->bytes();
        // sendmsg() does not write through it.
        iovec piece{.iov_base = const_cast<std::byte*>(left.data()), .iov_len = left.size()};
        const Transport::Result sent = Transport::send_to(fd_, {&piece, 1});
        if (sent.ended || sent.wait != Transport::Wait::none) return sent;
        out_->consume(sent.bytes);
        if (out_->bytes().empty()) give_back(out_);
    }
    return {};
}

void TlsStream::release_memory() noexcept { ::SSL_free_buffers(ssl_.get()); }

std::size_t TlsStream::memory() const {
    const auto of = [](const ReceiveBuffer* buffer) {
        return buffer != nullptr ? buffer->size() : 0;
    };
    return held_by_openssl + of(in_) + of(out_);
}

void TlsStream::say_goodbye() noexcept {
    if (!established_) return;
    ::SSL_shutdown(ssl_.get());
    ::ERR_clear_error();
    flush();
}

}  // namespace gpunbd::server
