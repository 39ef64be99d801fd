# What connect_probe.py does, for hosts that have no Python. Needs only what is in every Perl.
use strict;
use warnings;
use Errno qw(EINPROGRESS);
use Fcntl qw(F_GETFL F_SETFL O_NONBLOCK);
use Socket;

my ($address, $word) = @ARGV;
my ($lives, $waits) = (30, 3);
$| = 1;

sub place {
    my ($host, $port) = @_;
    return sockaddr_in6($port, Socket::inet_pton(AF_INET6, $host)) if $host =~ /:/;
    return sockaddr_in($port, inet_aton($host));
}

sub unblocked {
    my ($host) = @_;
    my $made;
    socket($made, $host =~ /:/ ? AF_INET6 : AF_INET, SOCK_STREAM, 0) or die "socket: $!";
    fcntl($made, F_SETFL, fcntl($made, F_GETFL, 0) | O_NONBLOCK);
    return $made;
}

my $end = time + $lives;
my $listener = unblocked($address);
unless (bind($listener, place($address, 0)) && listen($listener, 4096)) {
    print "error $!\n";
    exit;
}
my $own = getsockname($listener);
my ($port) = $address =~ /:/ ? unpack_sockaddr_in6($own) : sockaddr_in($own);
print "port $port\n";

my (%tries, %late);
my $text = '';

sub finish {
    my ($number, $why) = @_;
    delete $late{$number};
    close(delete $tries{$number}{socket});
    delete $tries{$number};
    print $why eq '' ? "tried $number\n" : "tried $number $why\n";
}

sub begin {
    my ($number, $host, $port, $wanted) = split ' ', $_[0];
    my $made = unblocked($host);
    $tries{$number} = {socket => $made, word => $wanted};
    $late{$number} = time + $waits + 1;    # whole seconds: never sooner than it should be
    finish($number, "$!") unless connect($made, place($host, $port)) || $! == EINPROGRESS;
}

sub outcome {
    my ($one) = @_;
    my $got = sysread($one->{socket}, my $data, 65536);
    return "$!" unless defined $got;
    return $data eq "$one->{word}\n" ? '' : 'another program answered';
}

while (time < $end) {
    my $wanted = '';
    vec($wanted, fileno($_), 1) = 1 for *STDIN, $listener, map { $_->{socket} } values %tries;
    select(my $ready = $wanted, undef, undef, 0.5);
    if (vec($ready, fileno(STDIN), 1)) {
        sysread(STDIN, my $data, 65536) or exit;
        $text .= $data;
        begin($1) while $text =~ s/^(.*)\n//;
    }
    if (vec($ready, fileno($listener), 1)) {
        while (accept(my $other, $listener)) {
            syswrite($other, "$word\n");
            close($other);
        }
    }
    for my $number (keys %tries) {
        my $socket = $tries{$number}{socket};
        if (vec($ready, fileno($socket), 1)) {
            finish($number, outcome($tries{$number}));
        } elsif (time >= $late{$number}) {
            finish($number, getpeername($socket) ? "connected, but nothing came back in $waits s" : "no answer in $waits s");
        }
    }
}
