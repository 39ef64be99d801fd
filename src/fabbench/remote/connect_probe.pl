# The same as connect_probe.py, for hosts without Python. Needs only what comes with every Perl.
use strict;
use warnings;
use Errno qw(EINPROGRESS);
use Fcntl qw(F_GETFL F_SETFL O_NONBLOCK);
use Socket;

my ($address, $token) = @ARGV;
my ($lifetime, $timeout) = (30, 3);
$| = 1;

sub sockaddr {
    my ($host, $port) = @_;
    return sockaddr_in6($port, Socket::inet_pton(AF_INET6, $host)) if $host =~ /:/;
    return sockaddr_in($port, inet_aton($host));
}

sub nonblocking {
    my ($host) = @_;
    my $socket;
    socket($socket, $host =~ /:/ ? AF_INET6 : AF_INET, SOCK_STREAM, 0) or die "socket: $!";
    fcntl($socket, F_SETFL, fcntl($socket, F_GETFL, 0) | O_NONBLOCK);
    return $socket;
}

my $end = time + $lifetime;
my $listener = nonblocking($address);
unless (bind($listener, sockaddr($address, 0)) && listen($listener, 4096)) {
    print "error $!\n";
    exit;
}
my $bound = getsockname($listener);
my ($port) = $address =~ /:/ ? unpack_sockaddr_in6($bound) : sockaddr_in($bound);
print "port $port\n";

my (%attempts, %deadlines);
my $text = '';

sub finish {
    my ($number, $why) = @_;
    delete $deadlines{$number};
    close(delete $attempts{$number}{socket});
    delete $attempts{$number};
    print $why eq '' ? "tried $number\n" : "tried $number $why\n";
}

sub begin {
    my ($number, $host, $port, $expected) = split ' ', $_[0];
    my $socket = nonblocking($host);
    $attempts{$number} = {socket => $socket, token => $expected};
    $deadlines{$number} = time + $timeout + 1;    # whole seconds: never too early
    finish($number, "$!") unless connect($socket, sockaddr($host, $port)) || $! == EINPROGRESS;
}

sub outcome {
    my ($attempt) = @_;
    my $size = sysread($attempt->{socket}, my $data, 65536);
    return "$!" unless defined $size;
    return $data eq "$attempt->{token}\n" ? '' : 'another program answered';
}

while (time < $end) {
    my $watched = '';
    vec($watched, fileno($_), 1) = 1 for *STDIN, $listener, map { $_->{socket} } values %attempts;
    select(my $ready = $watched, undef, undef, 0.5);
    if (vec($ready, fileno(STDIN), 1)) {
        sysread(STDIN, my $data, 65536) or exit;
        $text .= $data;
        begin($1) while $text =~ s/^(.*)\n//;
    }
    if (vec($ready, fileno($listener), 1)) {
        while (accept(my $peer, $listener)) {
            syswrite($peer, "$token\n");
            close($peer);
        }
    }
    for my $number (keys %attempts) {
        my $socket = $attempts{$number}{socket};
        if (vec($ready, fileno($socket), 1)) {
            finish($number, outcome($attempts{$number}));
        } elsif (time >= $deadlines{$number}) {
            finish($number, getpeername($socket) ? "connected, but nothing came back in $timeout s" : "no answer in $timeout s");
        }
    }
}
